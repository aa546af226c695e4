"""The rules of a tokenizer.json, and what the library leaves to us."""
