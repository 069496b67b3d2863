"""The pages that a CPU rank's process grows by are those that the memory plan names, within a tenth.

Each rank first trains a small model on the same layout: what code, threads and connections take is then there. The allocator gives
freed memory back at once, so that resident pages are live tensors.
"""

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from harness.ranks import group, spawn

from shardyard.strategies.cost.plan import plan
from shardyard.strategies.cost.snapshots import SNAPSHOTS
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

NEAR: Final = 0.1
MODEL: Final = {"dim": 512, "heads": 8, "kv_heads": 4, "hidden": 1536, "layers": 4, "vocab": 4096}
GPT2: Final = {"family": "gpt2", "dim": 512, "heads": 8, "hidden": 2048, "layers": 4, "vocab": 4096}
MIXTURE: Final = {**MODEL, "family": "moe", "hidden": 512, "experts": 4, "top_k": 2}
SMALL: Final = {"dim": 32, "hidden": 64}
#: glibc's mallopt: blocks from this size are pages of their own, which go back to the system when they are freed.
M_MMAP_THRESHOLD: Final = -3
PAGES_FROM: Final = 64 * 1024

#: No probe, since it holds what it measures.
COMMON: Final[dict[str, Any]] = {
    "model": MODEL,
    "precision": "fp32",
    "steps": 2,
    "global_batch": 8,
    "eval": {"batches": 1},
    "probe": {"every": None},
}
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one": ({}, {}),
    "one-recompute": ({}, {"recompute": "full"}),
    "one-every2": ({}, {"recompute": "every-2"}),
    "one-chunked": ({}, {"loss": {"chunk_tokens": 64}}),
    "one-gpt2": ({}, {"model": GPT2}),
    "data2": ({"data": 2}, {}),
    "data2-zero1": ({"data": 2, "zero": 1}, {}),
    "data2-zero2": ({"data": 2, "zero": 2}, {}),
    "data2-zero2-accumulate": ({"data": 2, "zero": 2, "micro_batch": 1}, {}),
    "data2-zero3": ({"data": 2, "zero": 3}, {}),
    "data4-zero3": ({"data": 4, "zero": 3}, {}),
    "data4-zero3-secondary": ({"data": 4, "zero": 3, "zero_plus_plus": {"secondary": 2}}, {}),
    "data4-zero3-groups": ({"data": 4, "zero": 3, "shard": 2}, {"recompute": "full"}),
    "data2-offload": ({"data": 2, "zero": 1}, {"offload": {"optimizer": 1}}),
    "tensor2": ({"tensor": 2}, {}),
    "tensor2-whole": ({"tensor": 2, "sequence": False}, {}),
    "tensor2-data2-zero1": ({"tensor": 2, "data": 2, "zero": 1}, {"recompute": "selective"}),
    "ring2": ({"context": 2}, {}),
    "ulysses2-zero1": ({"context": 2, "ulysses": 2, "zero": 1}, {}),
    "1f1b2": ({"pipeline": 2, "micro_batch": 1}, {}),
    "interleaved2": ({"pipeline": 2, "schedule": "interleaved", "micro_batch": 1}, {}),
    "zbv2": ({"pipeline": 2, "schedule": "zbv", "micro_batch": 1}, {}),
    "1f1b2-data2-zero1": ({"pipeline": 2, "data": 2, "zero": 1, "micro_batch": 1}, {}),
    "experts": ({"data": 2, "expert": 2}, {"model": MIXTURE}),
    "experts-zero1": ({"data": 2, "expert": 2, "zero": 1}, {"model": MIXTURE}),
    "gather2": ({"context": 2, "context_method": "all-gather"}, {}),
    "ulysses2-ring2": ({"context": 4, "ulysses": 2}, {}),
    "ring2-zero2-packed": ({"context": 2, "zero": 2}, {"data": {"documents": "packed"}}),
    "zb-h1-2": ({"pipeline": 2, "schedule": "zb-h1", "micro_batch": 1}, {}),
    "grid2x2": ({"tensor": {"mode": "2d", "shape": [2, 2]}}, {}),
}


def test_twenty_layouts_differ() -> None:
    assert len({repr(layout) for layout, _ in LAYOUTS.values()}) >= 20


def status(field: str) -> int:
    """Bytes of a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def grown(rank: int, world: int, port: int, small: str, whole: str) -> int:
    """Bytes by which this process' resident memory grows while the whole run is built and trained."""
    from shardyard.strategies.mesh import make_mesh

    assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, PAGES_FROM) == 1
    device = group(rank, world, port)
    first = Run.model_validate_json(small)
    mesh = make_mesh(first.train.layout, device)
    run(first, mesh)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before = status("VmRSS")
    run(Run.model_validate_json(whole), mesh)
    return status("VmHWM") - before


def run(job: Run, mesh: Any) -> None:
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import allocate
    from shardyard.workers.trainer.instruments import Instruments

    assemble(allocate(job, mesh), lambda *_: None, Instruments()).run()


def planned_bytes(train: TrainSpec) -> int:
    """Bytes of the fullest rank, with what it offloads to the host."""
    architecture = train.architecture(256)
    assert architecture is not None
    found = plan(planned_setting(train, architecture, "cpu"))
    return found.peak + sum(held for what, held in found.host.items() if what != SNAPSHOTS)


def orders(spec: dict[str, Any], folder: Path) -> str:
    train = TrainSpec.model_validate(spec)
    return Run(job="a", train=train, checkpoints=str(folder / "a"), cache=folder / "cache").model_dump_json()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_rank_grows_by_its_plan(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = LAYOUTS[name]
    spec = make_spec(layout, **{**COMMON, **changes})
    spec["data"] = {**make_spec(layout)["data"], **spec["data"], "seq_len": 128}
    small = {**spec, "model": {**spec["model"], **SMALL}}
    planned = planned_bytes(TrainSpec.model_validate(spec))
    ranks = spawn(grown, TrainSpec.model_validate(spec).layout.world_size, orders(small, root), orders(spec, root))
    shares = [one / planned for one in ranks]
    assert 1 - NEAR <= max(shares) <= 1 + NEAR, shares
