"""The supervisor's side of its ranks: placement, spares, replication pairs."""
