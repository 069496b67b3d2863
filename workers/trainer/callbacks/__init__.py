"""Callbacks around a training step."""
