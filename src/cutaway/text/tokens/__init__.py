"""Text to tokens and back: vocabularies, learned or read from files, and the tokenizer over them."""
