"""Optimizer state on a disk changes no number: the bits of memory on every layout, one process' in float64, and the same checkpoints.

Ranks have buckets of a few kilobytes, so that a step of the small model reads ahead and writes behind.
"""

import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from harness.models import MIXTURE
from harness.ranks import train, train_rank

from .test_layouts import assert_equal

Make = Callable[..., Any]

DISK: Final = {"optimizer": 1, "to": "disk"}
SGD: Final = {"name": "sgd", "lr": 1e-2}

#: Name → layout and changes. In bf16, where any other order of operations changes bits.
SAME_BITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zero1": ({"data": 2, "zero": 1}, {}),
    "alone": ({}, {}),
    "alone-fp32": ({}, {"precision": "fp32"}),
    "replicas": ({"data": 2}, {}),
    "replicas-fp32": ({"data": 2}, {"precision": "fp32"}),
    "zero2": ({"data": 2, "zero": 2}, {"precision": {"compute": "bf16", "gradients": "compute"}}),
    "zero3": ({"data": 2, "zero": 3}, {}),
    "zero3-fp32": ({"data": 3, "zero": 3}, {"precision": "fp32"}),
    "sgd-zero1": ({"data": 2, "zero": 1}, {"optimizer": SGD}),
    "sgd-zero3": ({"data": 2, "zero": 3}, {"optimizer": SGD}),
    "fp16-zero1": ({"data": 2, "zero": 1}, {"precision": "fp16"}),
    "half-zero1": ({"data": 2, "zero": 1}, {"offload": {"optimizer": 0.5, "to": "disk"}}),
    "half-replicas": ({"data": 2}, {"offload": {"optimizer": 0.5, "to": "disk"}}),
    "all-axes": ({"data": 2, "tensor": 2, "pipeline": 2, "zero": 1}, {}),
    "context-zero2": ({"data": 2, "context": 2, "zero": 2}, {}),
    "experts-zero1": ({"data": 2, "expert": 2, "zero": 1}, {"model": MIXTURE}),
}
FLOAT64: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zero1": ({"data": 2, "zero": 1}, {}),
    "zero2-tensor2": ({"data": 2, "zero": 2, "tensor": 2}, {}),
    "zero3": ({"data": 2, "zero": 3}, {}),
    "sgd-zero1": ({"data": 2, "zero": 1}, {"optimizer": SGD}),
    "half-pipeline2": ({"data": 2, "pipeline": 2}, {"offload": {"optimizer": 0.5, "to": "disk"}}),
}


def small_buckets(rank: int, world: int, port: int, orders: str, fails_after: int | None = None) -> Any:
    """Train with buckets of 16 kB. Rank 1's disk refuses what is written after step `fails_after`."""
    from shardyard.workers.trainer import optimizer
    from shardyard.workers.trainer.loop import Loop

    optimizer.DISK_BUCKET_BYTES = 16 << 10  # type: ignore[misc]
    given = Loop.optimizer_step

    def step(loop: Any, stats: Any) -> None:
        if rank == 1 and stats.step - 1 == fails_after:
            limit(4096)
        given(loop, stats)

    Loop.optimizer_step = step  # type: ignore[method-assign]
    return train_rank(rank, world, port, orders)


def limit(size: int) -> None:
    """Nothing can be written beyond `size` bytes of any file: the kernel refuses with EFBIG (Python ignores SIGXFSZ)."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize("name", SAME_BITS)
def test_the_same_bits_as_on_the_device(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = SAME_BITS[name]
    spec = make_spec(layout, **{"precision": "bf16", "steps": 3, "offload": DISK, **changes})
    expected = train({**spec, "offload": {}}, root, f"device-{name}")
    found = train(spec, root, f"disk-{name}", work=small_buckets)
    assert found["losses"] == expected["losses"] and found["norms"] == expected["norms"]
    for key, value in expected["parameters"].items():
        assert (found["parameters"][key] == value).all(), key
    assert not any((root / "cache" / "scratch").iterdir()), "its files have no names"


@pytest.mark.parametrize("name", FLOAT64)
def test_float64_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = FLOAT64[name]
    spec = make_spec(layout, **{"offload": DISK, **changes})
    expected = one_process({**spec, "offload": {}})
    assert_equal(train(spec, root, f"disk64-{name}", work=small_buckets), expected, 1e-10)


def test_checkpoints_have_the_bytes_of_memory_and_continue_on_any_layout(root: Path, make_spec: Make) -> None:
    save = {"every": 2, "final": False}
    spec = make_spec({"data": 2, "zero": 1}, precision="bf16", steps=4, checkpoint=save)
    memory = train(spec, root, "saved-memory")
    disk = train({**spec, "offload": DISK}, root, "saved-disk", work=small_buckets)
    assert disk["losses"] == memory["losses"]
    folders = [root / "checkpoints" / name / "step-00000002" for name in ("saved-memory", "saved-disk")]
    contents = [{file.name[:10]: file.read_bytes() for file in folder.glob("rank-*")} for folder in folders]
    assert contents[0] == contents[1] and len(contents[0]) == 2
    for number, (layout, offload) in enumerate([({"data": 2, "zero": 3}, {}), ({"pipeline": 2}, DISK)]):
        changed = {**spec, "layout": layout, "offload": offload, "checkpoint": {"final": False}}
        resumed = train(changed, root, f"then-{number}", resume=folders[1], work=small_buckets)
        np.testing.assert_allclose(resumed["losses"], memory["losses"][2:], rtol=0.01)
    same = train({**spec, "offload": DISK}, root, "again-disk", resume=folders[0], work=small_buckets)
    assert same["losses"] == memory["losses"][2:]
    assert all((same["parameters"][key] == value).all() for key, value in memory["parameters"].items())


@pytest.mark.parametrize(("precision", "tensors"), [("bf16", 3), ("fp32", 2)])
def test_each_step_reports_what_it_read_and_wrote(precision: str, tensors: int, root: Path, make_spec: Make) -> None:
    """All state of the rank once in each direction, padded to pages: two moments, and in mixed precision masters, of 4 bytes each."""
    found = train(make_spec({}, precision=precision, steps=3, offload=DISK), root, f"curves-{precision}")
    steps = [data for kind, data in found["events"] if kind == "step"]
    state = sum(tensors * -(-value.nbytes // 4096) * 4096 for value in found["parameters"].values())
    for step in steps:
        curves = step["logged"]
        assert curves["disk/read"] == curves["disk/written"] == state
        assert curves["disk/bandwidth"] > 0 and 0 <= curves["disk/waited_s"] <= step["step_s"]
        assert curves["disk/written_per_day"] == pytest.approx(state * 86_400 / step["step_s"])


def test_a_disk_that_fails_ends_the_rank_with_its_code(root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2, "zero": 1}, steps=4, offload=DISK, precision="bf16")
    with pytest.raises(
        RuntimeError, match=r"rank 1:[\s\S]*StateDiskError: the disk of .*scratch failed: file too large"
    ):
        train(spec, root, "failing", work=partial(small_buckets, fails_after=2))
