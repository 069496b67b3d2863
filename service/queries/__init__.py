"""What can be read of jobs."""
