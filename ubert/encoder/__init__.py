"""The encoder: attention masks, rows without padding, adapters, precision, ragged arrays."""
