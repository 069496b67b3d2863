"""Model state per rank, in bf16 mixed precision, counted from all tensors that live, within 2%: 18Ψ, 6Ψ+12Ψ/N, 2Ψ+16Ψ/N, 16Ψ/N bytes,
and with gradients in the dtype that computes 16Ψ, 4Ψ+12Ψ/N, 2Ψ+14Ψ/N, 16Ψ/N.

Counted between two micro-batches, where the first one's gradients are all there, none of the second one's, and nothing is on its way.
One rank runs what `parallelize` composes for every stage too: on N = 1 all of them hold 18Ψ or 16Ψ. (A job asks for none there, and is
refused.)
"""

import gc
import itertools
import time
from dataclasses import replace
from typing import Any

import pytest
from harness.ranks import group, spawn

from shardyard.strategies.cost.memory import state_bytes

STAGES = (0, 1, 2, 3)
WIDTH, LAYERS = 256, 8
NEAR = 0.02
ALIKE, MOST_READINGS = 4, 200


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_model_state_equals_the_formulas(ranks: int) -> None:
    for rank in spawn(_model_states, ranks):
        for (stage, wide), found in rank.items():
            assert found == pytest.approx(_expected(ranks, stage, wide), rel=NEAR), (stage, wide)


def _expected(ranks: int, stage: int, wide: bool) -> float:
    return state_bytes(stage, LAYERS * WIDTH * WIDTH, ranks, gradients=4 if wide else 2)


def _model_states(rank: int, world: int, port: int) -> dict[tuple[int, bool], int]:
    """Stage, and whether gradients are wider than what computes → bytes of all living storages, beyond those that lived before."""
    device, found = group(rank, world, port), {}
    for stage, wide in itertools.product(STAGES, (True, False)):
        gc.collect()
        gc.freeze()  # what lived before is not looked at again
        found[stage, wide] = _model_state(device, world, stage, wide)
    return found


def _model_state(device: Any, world: int, stage: int, wide: bool) -> int:
    import torch

    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.spec import OptimizerSpec
    from shardyard.workers.trainer.optimizer import make_optimizer

    parallel = _parallel(make_mesh(Layout(data=world, zero=stage), device), wide)
    (model,), data = parallel.parts, parallel.data
    optimizer = make_optimizer(data.shards, OptimizerSpec())
    found = 0
    for step in range(2):  # the first step makes what lives on
        for last in (False, True):
            data.before_backward(last)
            if step and last:
                found = _settled_bytes(_expected(world, stage, wide))
            model(torch.ones(1, WIDTH, dtype=torch.bfloat16)).float().sum().backward()
        data.reduce()
        optimizer.step()
        data.publish()
        data.settle()
    return found


def _parallel(mesh: Any, wide: bool) -> Any:
    import torch

    from shardyard.strategies.batch import Batch
    from shardyard.strategies.comm_overlap import Overlap
    from shardyard.strategies.loss import TokenLoss
    from shardyard.strategies.memory_options import MemoryOptions
    from shardyard.strategies.parallelize import Recipe, parallelize
    from shardyard.strategies.precision import PRECISIONS

    def build() -> torch.nn.Module:
        layers = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        return torch.nn.Sequential(torch.nn.Sequential(*layers))

    loss, overlap = TokenLoss(1), Overlap(bucket_mb=0.01, prefetch=1)
    batch = Batch(global_batch=2 * mesh.layout.data, data=mesh.layout.data, microbatches=2, micro_batch=1)
    precision = replace(PRECISIONS["bf16"], wide_gradients=wide)
    recipe = Recipe(build, False, batch, precision, MemoryOptions(), loss, overlap, loss.share)
    return parallelize(recipe, mesh)


def _settled_bytes(expected: float) -> int:
    """The living bytes once they are what is expected and no longer change.

    Gloo's threads let go of a collective's tensors some time after `wait` has returned; so that nothing changes for a while need not mean
    that they have.
    """
    recent = [_living_bytes()]
    while len(recent) < ALIKE or len(set(recent[-ALIKE:])) > 1 or recent[-1] != pytest.approx(expected, rel=NEAR):
        assert len(recent) < MOST_READINGS, f"the living bytes do not settle near {expected}: {recent}"
        time.sleep(0.1)
        recent.append(_living_bytes())
    return recent[-1]


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
