"""Does a checkpoint transfer to other data? Fine-tuned on a few shots of each category, and measured."""
