"""In host memory a step computes with the state itself: there is nothing to copy, read or write."""

import torch

from shardyard.strategies.activation_memory.state_home import StateHome


def test_tensors_are_where_they_were() -> None:
    home, tensor = StateHome(), torch.randn(3, 4).t()
    home.open([[tensor.nbytes]])
    assert home.kept(tensor) is tensor and home.place(0, tensor) is tensor
    zeros = home.zeros_like(tensor.requires_grad_())
    assert home.copy_like(tensor).shape == tensor.shape
    assert zeros.stride() == tensor.stride() and not zeros.any() and not zeros.requires_grad
