"""Pure decisions of the service: no I/O, no SQL, no Ray."""
