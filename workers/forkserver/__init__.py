"""The fork server: one warm process per node and environment that forks trainers."""
