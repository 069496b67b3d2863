"""However experts are computed, every row gets the result of its own expert, and the gradients are those of a loop."""

from typing import Any

import pytest
import torch
from torch import Tensor

from shardyard.workers.models.experts import Experts, Weights, by_batches, by_groups, by_loop, way_for

EXPERTS, DIM, HIDDEN = 4, 16, 24


def experts(dtype: torch.dtype) -> Experts:
    layer = Experts(EXPERTS, DIM, HIDDEN)
    noise = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=noise)
    return layer.to(dtype)


def rows(count: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(2)).to(dtype).requires_grad_()


def results(layer: Experts, x: Tensor, compute: Any) -> list[Tensor]:
    """Results, and the gradients of the rows and of each weight."""
    layer.zero_grad()
    x.grad = None
    out = compute(x, Weights(layer.gate, layer.up, layer.down))
    out.float().sin().sum().backward()
    assert x.grad is not None
    return [out.detach(), x.grad, *(p.grad.clone() for p in layer.parameters() if p.grad is not None)]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("counts", [[3, 0, 5, 2], [0, 0, 0, 10], [2, 1, 0, 0]], ids=str)
def test_grouped_products_equal_the_loop(counts: list[int], dtype: torch.dtype, bound: float) -> None:
    """Also where an expert has no row, and where the last rows belong to no expert."""
    layer, x, each = experts(dtype), rows(10, dtype), torch.tensor(counts)
    expected = results(layer, x, lambda x, weights: by_loop(x, each, weights))
    found = results(layer, x, lambda x, weights: by_groups(x, each, weights))
    assert len(found) == 5
    for ours, loop in zip(found, expected, strict=True):
        assert (ours.float() - loop.float()).norm() <= bound * loop.float().norm()
    behind = sum(counts)
    assert not found[0][behind:].any() and not found[1][behind:].any()
    for weight in found[2:]:
        assert [bool(grad.any()) for grad in weight] == [count > 0 for count in counts]


def test_a_batched_product_equals_the_loop() -> None:
    layer, x = experts(torch.float64), rows(12, torch.float64)
    each = torch.full((EXPERTS,), 3)
    expected = results(layer, x, lambda x, weights: by_loop(x, each, weights))
    found = results(layer, x, lambda x, weights: by_batches(x.view(EXPERTS, 3, DIM), weights).view(12, DIM))
    for ours, loop in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, loop, rtol=1e-12, atol=1e-12)


def test_a_cpu_computes_by_the_loop() -> None:
    layer = experts(torch.bfloat16)
    assert way_for(rows(4, torch.bfloat16), Weights(layer.gate, layer.up, layer.down)) is by_loop
