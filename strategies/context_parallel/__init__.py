"""Attention over a sequence that is sharded over ranks."""
