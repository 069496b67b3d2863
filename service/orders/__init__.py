"""Users' requests to stored jobs: faults, traces, checkpoint operations."""
