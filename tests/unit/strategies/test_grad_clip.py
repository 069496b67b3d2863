"""Clipping scales as torch's `clip_grad_norm_` does."""

import pytest
import torch

from shardyard.strategies import grad_clip
from shardyard.strategies.grad_clip import clip_factor, scale_gradients
from shardyard.strategies.param_shard import ParamShard


@pytest.mark.parametrize("limit", [1e-3, 0.9999999 * 5**0.5, 5**0.5, 5**0.5 + 2e-6, 10.0])
def test_is_what_torch_multiplies_by(limit: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    parameter.grad = torch.tensor([1.0, 2.0], dtype=torch.float64)
    norm = torch.nn.utils.clip_grad_norm_([parameter], limit).item()
    assert clip_factor(norm, limit) == pytest.approx(parameter.grad[0].item(), rel=1e-15)


def test_no_gradient_and_no_limit_change_nothing() -> None:
    assert clip_factor(0.0, 1.0) == clip_factor(1e300, None) == 1.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_an_untried_torch_takes_gradients_one_by_one(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same norms. Products too, but in half precision, where the fused function for CPUs rounds the factor first."""
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(n, 7, generator=generator).to(dtype) for n in (1, 0, 300)]
    found = []
    for tried in (True, False):
        monkeypatch.setattr(grad_clip, "tried", lambda tried=tried: tried)
        norm = grad_clip.square_sum(gradients, torch.device("cpu"))
        shards = []
        for gradient in gradients:
            parameter = torch.nn.Parameter(torch.zeros_like(gradient))
            parameter.grad = gradient.clone()
            shards.append(ParamShard("weight", tuple(gradient.shape), (0, 0), parameter, frozenset()))
        scale_gradients(shards, 0.3)
        found.append((norm, [shard.tensor.grad for shard in shards]))
    (norm, fused), (other, single) = found
    assert torch.equal(norm, other)
    tolerance = 0.0 if dtype.itemsize >= 4 else 2 * torch.finfo(dtype).eps
    for one, two in zip(fused, single, strict=True):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=0.0)


@pytest.mark.parametrize("tried", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_norms_of_half_precision_are_not_rounded_to_it(
    dtype: torch.dtype, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of parameter servers with a clock of its own clips gradients in the dtype in which it sends them."""
    monkeypatch.setattr(grad_clip, "tried", lambda: tried)
    gradients = [torch.ones(n, dtype=dtype) for n in (3, 1000)]
    assert grad_clip.square_sum(gradients, torch.device("cpu")).item() == pytest.approx(1003, rel=1e-6)
