"""Texts and pairs as batches to train on."""
