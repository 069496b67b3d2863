"""The read side of the service: queries over stored jobs."""
