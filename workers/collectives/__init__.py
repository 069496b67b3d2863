"""The collectives of a job's process groups, timed: algorithm and bus bandwidth by size, and the links between nodes."""
