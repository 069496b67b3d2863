"""Compact binary columns."""
