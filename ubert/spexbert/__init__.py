"""SpEx-BERT: pointing at one choice or answer."""
