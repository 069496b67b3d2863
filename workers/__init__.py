"""What runs on the cluster: gang, rank, trainer, training loop, models, data, checkpoints."""
