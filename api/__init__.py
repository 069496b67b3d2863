"""The interfaces of the service: REST, the Python client, the command line, the dashboard."""
