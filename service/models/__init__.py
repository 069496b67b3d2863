"""The model registry: what changes it."""
