"""How fast cutaway is, side by side with transformers on the same weights: `make bench`."""
