"""Text to tokens to batches, in data-flow order.

`corpus` reads files into lines, documents and pairs; `tokens` turns text into ids and back (vocabularies learned or
read from files; `tokens.tokenizer` is its door); `batches` lays ids out as tensors to train on; `chat` writes a
conversation by a model's own template. `display`, below all, shows pieces and widths as a reader sees them.
"""
