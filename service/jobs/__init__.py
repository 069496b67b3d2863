"""Submitting, validating and moving jobs."""
