"""The trainer: the process that trains one rank. It has torch and no Ray."""
