"""Jobs that run a program of the user's own: one process per rank, started and watched by the rank's trainer process."""
