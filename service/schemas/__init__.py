"""The value types of the service, for routes, clients and the command line."""
