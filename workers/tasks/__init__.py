"""Ray tasks that belong to no gang."""
