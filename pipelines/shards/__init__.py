"""Shards are tokenised mixtures, in files that training maps into memory."""
