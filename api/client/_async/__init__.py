"""The asynchronous client, written by hand."""
