"""Clipping scales as torch's `clip_grad_norm_` does."""

import pytest
import torch

from shardyard.strategies.grad_clip import clip_factor


@pytest.mark.parametrize("limit", [1e-3, 0.9999999 * 5**0.5, 5**0.5, 5**0.5 + 2e-6, 10.0])
def test_is_what_torch_multiplies_by(limit: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    parameter.grad = torch.tensor([1.0, 2.0], dtype=torch.float64)
    norm = torch.nn.utils.clip_grad_norm_([parameter], limit).item()
    assert clip_factor(norm, limit) == pytest.approx(parameter.grad[0].item(), rel=1e-15)


def test_no_gradient_and_no_limit_change_nothing() -> None:
    assert clip_factor(0.0, 1.0) == clip_factor(1e300, None) == 1.0
