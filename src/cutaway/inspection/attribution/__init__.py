"""Which part of the input or of the model a number came from."""
