"""Runs whose training state lies on a disk, beside the same runs with it elsewhere: what must be equal.

Ranks have buckets of a few kilobytes, so that a step of the small model reads ahead and writes behind.
"""

import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from harness.ranks import train, train_rank

from .test_layouts import assert_equal

#: The spec of a small job on a layout, with changes (the fixture `make_spec`).
Make = Callable[..., Any]

SGD: Final = {"name": "sgd", "lr": 1e-2}


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


def assert_same_bits(spec: dict[str, Any], elsewhere: dict[str, Any], root: Path, name: str) -> None:
    """The run with `spec`'s offload, to a disk, has the losses, norms and parameters of the same run with the offload `elsewhere`."""
    expected = train({**spec, "offload": elsewhere}, root, f"elsewhere-{name}")
    found = train(spec, root, f"disk-{name}", work=small_buckets)
    assert found["losses"] == expected["losses"] and found["norms"] == expected["norms"]
    for key, value in expected["parameters"].items():
        assert (found["parameters"][key] == value).all(), key
    assert not any((root / "cache" / "scratch").iterdir()), "its files have no names"


def assert_equals_one_process(spec: dict[str, Any], root: Path, name: str, one_process: Make) -> None:
    """In fp64, to 1e-10."""
    expected = one_process({**spec, "offload": {}})
    assert_equal(train(spec, root, f"disk64-{name}", work=small_buckets), expected, 1e-10)


def assert_checkpoints_equal(
    spec: dict[str, Any], elsewhere: dict[str, Any], others: list[tuple[dict[str, Any], dict[str, Any]]], root: Path
) -> None:
    """A checkpoint of `spec`, on a disk, has the bytes of one with the offload `elsewhere`; a run continues from each exactly.

    On `others`, layouts with their offloads, it continues within the precision. `spec` is of 2 ranks, 4 steps and bf16.
    """
    spec = {**spec, "checkpoint": {"every": 2, "final": False}}
    memory = train({**spec, "offload": elsewhere}, root, "saved-elsewhere")
    disk = train(spec, root, "saved-disk", work=small_buckets)
    assert disk["losses"] == memory["losses"]
    folders = [root / "checkpoints" / name / "step-00000002" for name in ("saved-elsewhere", "saved-disk")]
    contents = [{file.name[:10]: file.read_bytes() for file in folder.glob("rank-*")} for folder in folders]
    assert contents[0] == contents[1] and len(contents[0]) == 2
    for number, (layout, offload) in enumerate(others):
        changed = {**spec, "layout": layout, "offload": offload, "checkpoint": {"final": False}}
        resumed = train(changed, root, f"then-{number}", resume=folders[1], work=small_buckets)
        np.testing.assert_allclose(resumed["losses"], memory["losses"][2:], rtol=0.01)
    same = train(spec, root, "again-disk", resume=folders[0], work=small_buckets)
    assert same["losses"] == memory["losses"][2:]
    assert all((same["parameters"][key] == value).all() for key, value in memory["parameters"].items())


def assert_a_failing_disk_ends_the_rank(spec: dict[str, Any], root: Path) -> None:
    """With the code of the disk. `spec` is of 2 ranks, and of more than 2 steps."""
    with pytest.raises(
        RuntimeError, match=r"rank 1:[\s\S]*StateDiskError: the disk of .*scratch failed: file too large"
    ):
        train(spec, root, "failing", work=partial(small_buckets, fails_after=2))
