"""The layers between the socket and the routes."""
