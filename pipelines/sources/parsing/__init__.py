"""Parsing that readers share: text and lines, paragraphs, CSV records, XML, columns, rows in a JSON-like value."""
