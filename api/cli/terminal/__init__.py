"""Drawing on a terminal."""
