"""What stands between the socket and the routes."""
