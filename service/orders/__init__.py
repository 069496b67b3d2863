"""What users ask of running jobs: faults, traces, checkpoint operations."""
