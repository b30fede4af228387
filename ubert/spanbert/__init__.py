"""SpanBERT: which words are masked, and the losses that predict them."""
