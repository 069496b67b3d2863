"""Parameters on a disk change no number: the bits of memory on every layout, one process' in float64, and the same checkpoints."""

import ctypes
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from harness.memory_cgroup import memory_cgroup
from harness.models import LLAMA, MIXTURE
from harness.ranks import train, train_rank

from .disk_training import (
    SGD,
    Make,
    assert_a_failing_disk_ends_the_rank,
    assert_checkpoints_equal,
    assert_equals_one_process,
    assert_same_bits,
    limit,
)
from .test_resident_growth import M_MMAP_THRESHOLD, PAGES_FROM

MEMORY: Final = {"parameters": True}
DISK: Final = {"parameters": True, "to": "disk"}
TWO: Final = {"data": 2, "zero": 3}
FOUR: Final = {"data": 4, "zero": 3}
TIED: Final = {**LLAMA, "tied": True}

#: Name → layout and changes. In bf16, where any other order of operations changes bits.
SAME_BITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two": (TWO, {}),
    "four": (FOUR, {}),
    "uneven-fp32": ({"data": 3, "zero": 3}, {"precision": "fp32"}),
    "fp16": (TWO, {"precision": "fp16"}),
    "recompute": (TWO, {"recompute": "full"}),
    "recompute-four": (FOUR, {"recompute": "every-2", "loss": {"label_smoothing": 0.1}}),
    "selective": (TWO, {"recompute": "selective"}),
    "micro-batches": ({**TWO, "micro_batch": 2}, {}),
    "prefetch": (TWO, {"overlap": {"prefetch": 4}}),
    "sgd": (TWO, {"optimizer": SGD}),
    "tied": (TWO, {"model": TIED}),
    "groups": ({**FOUR, "shard": 2}, {}),
    "tensor2": ({**TWO, "tensor": 2}, {}),
    "context2": ({**TWO, "context": 2}, {}),
    "pipeline2": ({**TWO, "pipeline": 2}, {}),
    "zbv2-tied": ({**TWO, "pipeline": 2, "schedule": "zbv"}, {"model": TIED}),
    "experts": ({**TWO, "expert": 2}, {"model": MIXTURE}),
    "activations": (TWO, {"offload": {**DISK, "activations": True}}),
}
FLOAT64: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two": (TWO, {}),
    "four-recompute": (FOUR, {"recompute": "full"}),
    "tensor2-pipeline2": ({**TWO, "tensor": 2, "pipeline": 2}, {}),
}


@pytest.mark.parametrize("name", SAME_BITS)
def test_the_same_bits_as_in_memory(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = SAME_BITS[name]
    spec = make_spec(layout, **{"precision": "bf16", "steps": 3, "offload": DISK, **changes})
    assert_same_bits(spec, {**spec["offload"], "to": "host"}, root, name)


@pytest.mark.parametrize("name", FLOAT64)
def test_float64_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = FLOAT64[name]
    assert_equals_one_process(make_spec(layout, **{"offload": DISK, **changes}), root, name, one_process)


def test_checkpoints_have_the_bytes_of_memory_and_continue_on_any_layout(root: Path, make_spec: Make) -> None:
    spec = make_spec(TWO, precision="bf16", steps=4, offload=DISK)
    assert_checkpoints_equal(spec, MEMORY, [({"data": 2, "zero": 1}, {}), (FOUR, DISK)], root)


@pytest.mark.parametrize("microbatches", [1, 2])
def test_each_step_reports_what_it_read_and_wrote(microbatches: int, root: Path, make_spec: Make) -> None:
    """Values and two moments once in each direction, and values for each pass of each micro-batch."""
    spec = make_spec({**TWO, "micro_batch": 8 // microbatches}, precision="bf16", steps=4, offload=DISK)
    found = train({**spec, "eval": {"every": None}}, root, f"curves-{microbatches}")
    steps = [data for kind, data in found["events"] if kind == "step"]
    rows = [(-(-len(value) // 2), value[0].nbytes) for value in found["parameters"].values()]
    values = sum(-(-count * size // 4096) * 4096 for count, size in rows)
    for step in steps[1:-1]:
        curves = step["logged"]
        assert curves["disk/read"] == curves["disk/written"] == 3 * values
        assert values <= curves["disk/gathered"] <= 2 * microbatches * values
        assert 0 <= curves["disk/gather_waited_s"] <= step["step_s"]


def test_a_disk_that_fails_ends_the_rank_with_its_code(root: Path, make_spec: Make) -> None:
    assert_a_failing_disk_ends_the_rank(make_spec(TWO, steps=4, offload=DISK, precision="bf16"), root)


def full_disk(rank: int, world: int, port: int, orders: str) -> Any:
    """Train. Rank 1's file may not grow beyond 1 MiB."""
    from shardyard.strategies.activation_memory.state_file import StateFile

    make = StateFile.__init__

    def made(file: StateFile, folder: Path) -> None:
        make(file, folder)
        if rank == 1:
            limit(1 << 20)

    StateFile.__init__ = made  # type: ignore[method-assign]
    return train_rank(rank, world, port, orders)


def test_a_full_disk_ends_the_rank_before_the_first_step(root: Path, make_spec: Make) -> None:
    spec = make_spec(TWO, steps=4, offload=DISK, precision="bf16")
    with pytest.raises(RuntimeError, match=r"rank 1:[\s\S]*StateDiskError: .*scratch has no room for [\d,]+ bytes"):
        train(spec, root, "full", work=full_disk)


def unreadable_disk(rank: int, world: int, port: int, orders: str) -> Any:
    """Train. From step 3 on rank 1's disk cannot be read, so that its forward pass fails."""
    from shardyard.strategies.activation_memory.state_file import StateFile
    from shardyard.workers.trainer.loop import Loop

    files: list[StateFile] = []
    make, given = StateFile.__init__, Loop.forward_backward

    def made(file: StateFile, folder: Path) -> None:
        make(file, folder)
        files.append(file)

    def forward_backward(loop: Any, step: int) -> Any:
        if rank == 1 and step == 3:
            broken = os.open(f"/proc/self/fd/{files[0]._file}", os.O_WRONLY)
            os.dup2(broken, files[0]._blocks)
        return given(loop, step)

    StateFile.__init__ = made  # type: ignore[method-assign]
    Loop.forward_backward = forward_backward  # type: ignore[method-assign]
    return train_rank(rank, world, port, orders)


def test_a_disk_that_cannot_be_read_in_a_pass_ends_the_rank_with_its_code(root: Path, make_spec: Make) -> None:
    spec = make_spec(TWO, steps=4, offload=DISK, precision="bf16")
    with pytest.raises(RuntimeError, match=r"rank 1:[\s\S]*StateDiskError: the disk of .*scratch failed: bad file"):
        train(spec, root, "unreadable", work=unreadable_disk)


def in_a_cgroup(rank: int, world: int, port: int, orders: str, procs: str) -> Any:
    """Train with buckets of 1 MiB. What the rank allocates from now on counts, and no gaps of the heap."""
    from shardyard.workers.trainer import optimizer

    assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, PAGES_FROM) == 1
    optimizer.DISK_BUCKET_BYTES = 1 << 20  # type: ignore[misc]
    Path(procs).write_text(str(os.getpid()))
    train_rank(rank, world, port, orders)
    return {"events": [], "shards": []}


@pytest.mark.parametrize("offload", [DISK, MEMORY], ids=["disk", "memory"])
def test_host_memory_is_that_of_gradients_and_buffers(
    offload: dict[str, Any], root: Path, make_spec: Make, tmp_path: Path
) -> None:
    """2 ranks with 50 million parameters: 16 bytes of each in memory are 800 MB, 4 bytes of gradients 200 MB."""
    model = {"family": "llama", "preset": "nano", "layers": 16, "dim": 512, "heads": 4, "kv_heads": 4, "hidden": 1376}
    spec = make_spec(TWO, model=model, steps=2, offload=offload, precision="fp32", global_batch=2)
    spec = {**spec, "eval": {"every": None}, "snapshot": {"every": 0}}
    with memory_cgroup(720 << 20) as folder:
        work = partial(in_a_cgroup, procs=str(folder / "cgroup.procs"))
        if offload == DISK:
            train(spec, tmp_path, "bounded", work=work)
        else:
            with pytest.raises(RuntimeError, match="died without a word"):
                train(spec, tmp_path, "unbounded", work=work)
