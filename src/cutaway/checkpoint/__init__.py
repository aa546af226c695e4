"""Files to models and back: Hugging Face's folder layout, one short file of rows per architecture."""
