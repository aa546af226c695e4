"""Text to tokens to batches: corpora, tokenizers, batch makers, and tokens as a reader sees them."""
