"""Model state per rank, in bf16 mixed precision, counted from all tensors that live: 16Ψ, 4Ψ+12Ψ/N, 2Ψ+14Ψ/N, 16Ψ/N bytes within 2%."""

import gc
from typing import Any

import pytest
from harness.ranks import group, spawn

FORMULAS = {
    0: lambda psi, n: 16 * psi,
    1: lambda psi, n: 4 * psi + 12 * psi / n,
    2: lambda psi, n: 2 * psi + 14 * psi / n,
    3: lambda psi, n: 16 * psi / n,
}
CASES = [(0, 1), *((stage, ranks) for stage in (0, 1, 2, 3) for ranks in (2, 4, 8))]


@pytest.mark.parametrize(("stage", "ranks"), CASES)
def test_model_state_equals_the_formula(stage: int, ranks: int) -> None:
    found = spawn(_model_state, ranks, stage)
    expected = FORMULAS[stage](found[0]["parameters"], ranks)
    for rank in found:
        assert rank["bytes"] == pytest.approx(expected, rel=0.02)


def _model_state(rank: int, world: int, port: int, stage: int) -> dict[str, int]:
    """Bytes of all living storages while a step's gradients are there: in stages 0 and 1 before the last micro-batch, which sends and
    drops them bucket by bucket; in stages 2 and 3 after it, when nothing is on its way.
    """
    import torch

    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.optimizer import make_optimizer
    from shardyard.workers.spec import OptimizerSpec

    mesh = make_mesh(Layout(data=world, zero=stage), group(rank, world, port))
    model, data = _spread(mesh, stage)
    count = 8 * 256 * 256
    optimizer = make_optimizer(data.pieces, OptimizerSpec())
    for _ in range(2):  # the first step makes what lives on
        loss = model(torch.ones(1, 256, dtype=torch.bfloat16)).float().sum()
        data.before_backward(last=stage >= 2)
        loss.backward()
        del loss
        found = _living_bytes() if stage != 2 else 0
        if stage < 2:
            data.before_backward(last=True)
        if stage == 2:
            data._order.flush()
            data._receive_all()
            found = _living_bytes()
        data.reduce()
        optimizer.step()
        data.publish()
        data.settle()
    return {"parameters": count, "bytes": found}


def _spread(mesh: Any, stage: int) -> Any:
    import torch

    from shardyard.strategies.data import Replicated
    from shardyard.strategies.overlap import Overlap
    from shardyard.strategies.piece import parameters
    from shardyard.strategies.precision import PRECISIONS
    from shardyard.strategies.shard import FullyShard
    from shardyard.strategies.zero import ShardedOptimizer

    model = torch.nn.Sequential(torch.nn.Sequential(*(torch.nn.Linear(256, 256, bias=False) for _ in range(8))))
    precision, overlap = PRECISIONS["bf16"], Overlap(bucket_mb=0.01, prefetch=1)
    if stage == 3:
        return model, FullyShard([model], mesh, precision, lambda _: None, overlap)
    model.to(torch.bfloat16)
    if stage == 0:
        return model, Replicated(parameters([model], mesh), mesh, precision, overlap)
    return model, ShardedOptimizer([model], mesh, precision, stage, overlap)


def _living_bytes() -> int:
    import torch

    gc.collect()
    tensors = [value for value in gc.get_objects() if isinstance(value, torch.Tensor)]
    tensors += [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
    storages = {}
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        if local.device.type != "meta":
            storages[local.untyped_storage().data_ptr()] = local.untyped_storage().nbytes()
    return sum(storages.values())
