"""Formats that define spans, tags, relations, events or questions themselves, such as brat and CoNLL."""
