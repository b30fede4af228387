"""UniLM: sequences with hidden words, their loss, and copying from the source."""
