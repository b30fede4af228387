"""UniLM: cloze sequences, their loss, and copying from the source."""
