"""The interface of a cluster for the dispatcher, and its implementation with Ray."""
