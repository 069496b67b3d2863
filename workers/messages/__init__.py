"""What crosses a process boundary: plain data. Imports neither torch nor Ray."""
