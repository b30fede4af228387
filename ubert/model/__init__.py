"""The model: encoder with its heads, tokenizer, and the files of both."""
