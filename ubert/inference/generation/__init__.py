"""Generate texts: beam search over the next tokens of a target, and its words as text."""
