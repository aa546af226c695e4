"""Weights as linear maps."""
