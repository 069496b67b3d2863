"""How ZeRO-1 and ZeRO-2 sum gradients: by the backend's reduce-scatter in the dtype of the sum, and on gloo by an all-to-all.

The fake backend computes nothing, and is no gloo: what is started on it is what NCCL would start.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.ranks import group, spawn
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.layout import Batch, Layout
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions
from shardyard.strategies.mesh import Mesh, make_mesh
from shardyard.strategies.parallelize import Parallel, Recipe, parallelize
from shardyard.strategies.precision import PRECISIONS
from shardyard.workers.dry_run.collective_log import CollectiveLog

WIDTH, LAYERS, MICROBATCHES = 16, 4, 2
PSI = WIDTH * WIDTH * LAYERS
CPU = torch.device("cpu")


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
    return torch.nn.Sequential(torch.nn.Sequential(*layers))


def parallel(mesh: Mesh, precision: str, wide: bool) -> Parallel:
    loss, overlap = TokenLoss(1), Overlap(bucket_mb=0.002, prefetch=1)
    ranks = mesh.layout.data
    batch = Batch(MICROBATCHES * ranks, ranks, MICROBATCHES, 1)
    kind = replace(PRECISIONS[precision], wide_gradients=wide)
    return parallelize(Recipe(model, None, batch, kind, MemoryOptions(), loss, overlap, loss.share), mesh)


def step(made: Parallel, seed: int) -> None:
    """A step of plain gradient descent."""
    (whole,) = made.parts
    draw = torch.Generator().manual_seed(seed)
    for number in range(MICROBATCHES):
        made.data.before_backward(number == MICROBATCHES - 1)
        given = torch.randn(1, WIDTH, generator=draw).to(next(whole.parameters()).dtype)
        whole(given).float().square().sum().backward()
    made.data.reduce()
    with torch.no_grad():
        for shard in made.data.shards:
            assert shard.tensor.grad is not None
            shard.tensor.sub_(0.01 * shard.tensor.grad)
    made.data.publish()
    made.data.settle()


@pytest.mark.parametrize(
    ("stage", "wide", "dtype"),
    [(1, True, torch.float32), (2, True, torch.float32), (1, False, torch.bfloat16), (2, False, torch.bfloat16)],
)
def test_the_backends_reduce_scatter_sums_in_the_dtype_that_is_asked_for(
    stage: int, wide: bool, dtype: torch.dtype
) -> None:
    ranks = 4
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=ranks)
    try:
        mesh = make_mesh(Layout(data=ranks, zero=stage), CPU)  # type: ignore[arg-type]
        made = parallel(mesh, "bf16", wide)
        with CollectiveLog(mesh).logging() as log:
            step(made, 0)
        (order,) = log.order.values()
    finally:
        dist.destroy_process_group()
    assert {entry.rpartition(" ")[0] for entry in order} == {
        f"_reduce_scatter_base_ {dtype}",
        "_allgather_base_ torch.bfloat16",
    }
    times = MICROBATCHES if stage == 2 else 1
    share = PSI * (ranks - 1) / ranks
    moved = {kind: (one.elements, one.bytes) for kind, one in log.moved["data"].items()}
    assert moved == {
        "reduce_scatter": (times * share, times * share * dtype.itemsize),
        "all_gather": (share, share * 2),
    }


CASES = [(stage, precision, wide) for stage in (1, 2) for precision in ("bf16", "fp32") for wide in (True, False)]


def both_ways(rank: int, world: int, port: int) -> Any:
    """For each case the parameters after two steps, with gloo's own reduce-scatter and with the all-to-all."""
    device = group(rank, world, port)
    found = []
    for stage, precision, wide in CASES:
        mesh = make_mesh(Layout(data=world, zero=stage), device)  # type: ignore[arg-type]
        assert not mesh.reduces
        ways = []
        for reduces in (True, False):
            made = parallel(replace(mesh, reduces=reduces), precision, wide)
            for number in range(2):
                step(made, 10 * number + rank)
            ways.append([value.detach().double().numpy() for value in made.parts[0].parameters()])
        found.append(ways)
    return found


def test_both_ways_train_alike() -> None:
    """To the bit where sums are made in fp32. In bf16 the all-to-all's sums are rounded once less."""
    first, second = spawn(both_ways, 2)
    before = [value.detach().double().numpy() for value in model().parameters()]
    for (_, precision, wide), native, exchanged, other in zip(
        CASES, *zip(*first, strict=True), (ways[0] for ways in second), strict=True
    ):
        for start, one, two, same in zip(before, native, exchanged, other, strict=True):
            assert (one == same).all() and abs(one - start).max() > 1e-3
            near = 0 if wide or precision == "fp32" else 2**-7 * abs(two).max()
            assert abs(one - two).max() <= near, (precision, wide)
