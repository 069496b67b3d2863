"""Pure decisions of the supervisor: no I/O, no Ray, no torch."""
