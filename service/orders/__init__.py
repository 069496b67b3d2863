"""Users' requests to stored jobs: faults, traces, profiles, commands, checkpoint operations."""
