"""A text on its way through a model, and what a reader may point at in it."""
