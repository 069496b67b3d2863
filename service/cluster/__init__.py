"""What a dispatcher needs of a cluster, and Ray's implementation of it."""
