"""What a model is made of, told by its configuration and its files alone."""
