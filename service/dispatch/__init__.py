"""The dispatcher: it starts gangs, stores their events, retries, and keeps its leases."""
