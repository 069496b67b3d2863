"""Users' requests to stored jobs: faults, traces, profiles, checkpoint operations."""
