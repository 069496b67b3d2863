"""The training engine's strategies: how a model is spread over ranks. Knows torch, and nothing of Ray, HTTP or databases."""
