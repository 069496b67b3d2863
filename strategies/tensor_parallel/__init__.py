"""Weights sharded over the tensor axis."""
