"""Gathers the annotations of a row, locates their mentions in the text, and fills them into a record."""
