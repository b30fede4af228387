"""SpanBERT: masking, and the losses that predict masked words."""
