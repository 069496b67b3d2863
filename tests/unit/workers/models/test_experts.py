"""However experts are computed, every row gets the result of its own expert, and the gradients are those of a loop."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.gpu_models import GPU_MODELS, GpuModel
from shardyard.workers.models.experts import Experts, Weights, by_batches, by_groups, by_loop, way_for
from shardyard.workers.spec import TrainSpec

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


#: The same on each GPU: the width of hidden states and of experts, and over how many tensor ranks.
WIDTHS = [(64, 96, 1), (64, 96, 2), (64, 24, 2), (36, 96, 1)]


@pytest.mark.parametrize("gpu", GPU_MODELS, ids=lambda gpu: gpu.name)
def test_the_memory_plan_knows_where_experts_are_computed_in_groups(
    gpu: GpuModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Ampere, Ada and Hopper, in bf16, where a rank's rows are multiples of 16 bytes."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: gpu.capability)
    grouped = gpu.name[0] in "HAL"
    for precision in ("bf16", "fp16"):
        for dim, hidden, tensor in WIDTHS:
            with FakeTensorMode():
                x = torch.empty(4, dim, dtype=torch.bfloat16 if precision == "bf16" else torch.float16, device="cuda")
                weight = x.new_empty(EXPERTS, hidden // tensor, dim)
                way = way_for(x, Weights(weight, weight, weight.transpose(1, 2)))
            assert way is (by_groups if grouped and precision == "bf16" and _fit(dim, hidden // tensor) else by_loop)
            model = {"family": "moe", "preset": "nano", "dim": dim, "heads": 2, "kv_heads": 2, "hidden": hidden}
            fields = {"model": {**model, "experts": EXPERTS}, "layout": {"tensor": tensor}, "precision": precision}
            train = TrainSpec.model_validate({"steps": 1, "global_batch": 2, **fields})
            architecture = train.architecture(256)
            assert architecture is not None
            planned = planned_setting(train, architecture, "cuda", gpu.capability)
            assert planned.experts_together == (way is by_groups), (precision, dim, hidden, tensor)


def _fit(*widths: int) -> bool:
    return all(2 * width % 16 == 0 for width in widths)


def test_an_amd_gpu_computes_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose gfx version is Hopper's compute capability."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with FakeTensorMode():
        x = torch.empty(4, 64, dtype=torch.bfloat16, device="cuda")
        weight = x.new_empty(EXPERTS, 96, 64)
        assert way_for(x, Weights(weight, weight, weight.transpose(1, 2))) is by_loop
