"""The certificate of a layout: a short training on it and in one process, in float64, compared number by number.

The one process trains without any strategy. If a layout rounds messages or has late gradients, it does that too (`reference.py`).
"""
