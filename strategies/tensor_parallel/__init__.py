"""Weights cut over the tensor axis."""
