"""Shards: mixtures that are tokenised once, into files that training maps into memory."""
