"""Tensors to tensors: the parts every family is assembled from. Knows no files and no text."""
