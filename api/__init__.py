"""The doors of the house: REST, the Python client, the command line, the dashboard."""
