"""Snapshots in shared memory, and their copies on other nodes."""
