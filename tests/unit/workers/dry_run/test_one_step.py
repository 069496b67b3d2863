"""Dry runs of small layouts in processes of their own: the numbers follow from the layout's formulas."""

import json
import subprocess
import sys
from typing import Any

import pytest

from shardyard.strategies import cxx_compiler

pytestmark = pytest.mark.skipif(
    cxx_compiler.found() is None, reason="a dry run compiles its fake device: no C++ compiler here"
)

TRAIN = {
    "model": {"preset": "nano"},
    "data": {"seq_len": 128},
    "precision": "bf16",
    "steps": 3,
    "global_batch": 8,
}


def ran(rank: int = 0, **train: Any) -> subprocess.CompletedProcess[str]:
    request = json.dumps({"train": {**TRAIN, **train}, "vocab": 256, "rank": rank})
    command = [sys.executable, "-P", "-m", "shardyard.workers.dry_run"]
    return subprocess.run(command, input=request, capture_output=True, text=True, timeout=300, check=False)


def report(rank: int = 0, **train: Any) -> dict[str, Any]:
    done = ran(rank, **train)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_state_is_sharded_as_zero_says_and_only_the_loss_is_read() -> None:
    """After build: 2Ψ + 12Ψ/N bytes under ZeRO-1 with bf16, give or take padding and the allocator's blocks of 512 bytes."""
    found = report(layout={"data": 4, "zero": 1})
    whole = found["parameters"]
    assert found["state_bytes"] == pytest.approx(2 * whole + 12 * whole / 4, rel=0.01)
    assert sum(found["by_kind"].values()) == found["peak_bytes"] > found["state_bytes"]
    assert [sync["line"].partition(":")[0] for sync in found["host_syncs"] if sync["what"] == "read from device"] == [
        "strategies/grad_clip.py"
    ]


def test_all_ranks_of_a_group_start_the_same_collectives() -> None:
    first, last = (report(rank, layout={"data": 2, "tensor": 2, "zero": 3}) for rank in (0, 3))
    assert [(c["axis"], c["kind"], c["calls"]) for c in first["collectives"]] == [
        (c["axis"], c["kind"], c["calls"]) for c in last["collectives"]
    ]
    assert first["sequence"]["0,1,2,3"] == last["sequence"]["0,1,2,3"]


def test_what_a_dry_run_does_not_cover_is_refused_with_its_field() -> None:
    done = ran(layout={"pipeline": 2})
    assert done.returncode == 2 and done.stderr.startswith("layout.pipeline:")
