"""The folder of a program's PYTHONPATH. What lies here can be imported by users' programs by its bare name."""
