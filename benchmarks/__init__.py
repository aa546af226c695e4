"""How fast cutaway is, side by side with transformers and TransformerLens on the same weights: `make bench`."""
