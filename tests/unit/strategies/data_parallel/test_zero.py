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

from shardyard.strategies.batch import Batch
from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.data_parallel import gathers
from shardyard.strategies.layout import Layout
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


def parallel(mesh: Mesh, precision: str, wide: bool, bucket_mb: float = 0.002) -> Parallel:
    loss, overlap = TokenLoss(1), Overlap(bucket_mb=bucket_mb, prefetch=1)
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
    # In bf16 one bucket has all gradients. In fp32 it takes two, whose rows stay at stage 1: the parameters land there, in one call.
    gather = "allgather_into_tensor_coalesced_" if stage == 1 and wide else "_allgather_base_"
    assert {entry.rpartition(" ")[0] for entry in order} == {
        f"_reduce_scatter_base_ {dtype}",
        f"{gather} torch.bfloat16",
    }
    times = MICROBATCHES if stage == 2 else 1
    share = PSI * (ranks - 1) / ranks
    moved = {kind: (one.elements, one.bytes) for kind, one in log.moved["data"].items()}
    assert moved == {
        "reduce_scatter": (times * share, times * share * dtype.itemsize),
        "all_gather": (share, share * 2),
    }


class NotedWork(dist.Work):
    def __init__(self, name: str, notes: list[str]) -> None:
        super().__init__()
        self._name, self._notes = name, notes

    def wait(self, *_: Any) -> bool:
        self._notes.append(f"wait {self._name}")
        return True


def notes_of_a_step(monkeypatch: pytest.MonkeyPatch, stage: int, bucket_mb: float) -> list[str]:
    """What a step on the fake backend starts and waits for, between `reduce` and `publish` and around them."""
    notes: list[str] = []

    def noted(name: str) -> Any:
        def start(into: torch.Tensor, *_: Any, **__: Any) -> NotedWork:
            into.zero_()
            notes.append(f"start {name}")
            return NotedWork(name, notes)

        return start

    def together(_: Any, into: list[torch.Tensor], mine: list[torch.Tensor]) -> NotedWork:
        for rows in into:
            rows.zero_()
        notes.append(f"start gather of {len(mine)}")
        return NotedWork(f"gather of {len(mine)}", notes)

    monkeypatch.setattr(dist.ProcessGroup, "all_gather_single_coalesced", together)
    monkeypatch.setattr(dist, "reduce_scatter_single", noted("reduce"))
    monkeypatch.setattr(dist, "all_gather_single", noted("gather"))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        made = parallel(make_mesh(Layout(data=4, zero=stage), CPU), "bf16", True, bucket_mb)  # type: ignore[arg-type]
        for name in ("reduce", "publish", "settle"):
            monkeypatch.setattr(made.data, name, _after(getattr(made.data, name), lambda name=name: notes.append(name)))
        step(made, 0)
    finally:
        dist.destroy_process_group()
    return notes


def _after(call: Any, note: Any) -> Any:
    def noted() -> None:
        note()
        call()

    return noted


def test_where_no_memory_is_needed_all_are_in_transit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of 1,024 bytes per layer in fp32, of which a rank gathers 128 rounded ones; all in one call."""
    notes = notes_of_a_step(monkeypatch, 1, bucket_mb=0.001)
    reduced, waits = ["start reduce"] * LAYERS, ["wait reduce"] * LAYERS
    assert [note for note in notes if note != "settle"] == [
        *reduced, "reduce", *waits, "publish", f"start gather of {LAYERS}", f"wait gather of {LAYERS}",
    ]  # fmt: skip


def test_a_call_gathers_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 bytes per layer: two or one of them fit, and what does not fit is gathered alone, all at once."""
    for bytes_per_call, calls in ((1024, ["gather of 2"] * 2), (1023, ["gather"] * 4), (1, ["gather"] * 4)):
        monkeypatch.setattr(gathers, "CALL_BYTES", bytes_per_call)
        notes = [note for note in notes_of_a_step(monkeypatch, 1, bucket_mb=0.001) if "gather" in note]
        assert notes == [f"{verb} {call}" for verb in ("start", "wait") for call in calls]


def test_memory_in_transit_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 314 bytes is room for two rounded chunks of 128; of gradients that do not stay, one bucket is in transit."""
    notes = notes_of_a_step(monkeypatch, 1, bucket_mb=0.0003)
    asked = [note for note in notes if "gather" in note]
    assert asked == ["start gather of 2", "wait gather of 2"] * 2
    reductions = [note for note in notes_of_a_step(monkeypatch, 2, bucket_mb=0.001) if note.endswith("reduce")]
    assert max(reductions[:n].count("start reduce") - reductions[:n].count("wait reduce") for n in range(16)) == 1


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
