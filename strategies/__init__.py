"""The training engine's strategies: how a model is distributed over ranks. Imports torch, but not Ray, HTTP or databases."""
