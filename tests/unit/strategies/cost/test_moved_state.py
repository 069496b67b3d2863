"""What an optimizer elsewhere takes of the host's memory and of a disk."""

from dataclasses import replace
from typing import Any

import pytest

from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.cost.plan import plan
from shardyard.strategies.memory_options import (
    DISK_BUCKET_BYTES,
    DISK_BUFFERS,
    OFFLOAD_BUCKET_BYTES,
    PARAMETER_BUFFERS,
)

from .test_estimate import setting
from .test_plan import of


def test_state_on_a_disk_takes_the_memory_of_its_buffers() -> None:
    large: dict[str, Any] = {"model": {"preset": "7B"}, "snapshot": {"every": 0}}
    memory, disk = (of({"data": 4, "zero": 1}, offload={"optimizer": 1, "to": to}, **large) for to in ("host", "disk"))
    assert (memory.disk, memory.by_kind) == (0, disk.by_kind)
    buckets = DISK_BUFFERS * 3 + 2 + 2  # values and two moments; gradients; values on their way up
    assert disk.host == {"optimizer": buckets * DISK_BUCKET_BYTES}
    assert disk.disk == memory.host["optimizer"] - 4 * OFFLOAD_BUCKET_BYTES
    (note,) = set(disk.notes) - set(memory.notes)
    assert f"{disk.disk / 1e9:,.1f} GB" in note
    half = of({"data": 4, "zero": 1}, offload={"optimizer": 0.5, "to": "disk"}, **large)
    assert half.disk == pytest.approx(disk.disk / 2) and half.host == disk.host
    moments = of({"data": 4, "zero": 3}, offload={"optimizer": 1, "to": "disk"}, **large)  # the device has the values
    assert moments.disk == pytest.approx(disk.disk * 2 / 3, rel=0.01)
    assert moments.host == {"optimizer": (buckets + 2) * DISK_BUCKET_BYTES}
    kept = of({"data": 4, "zero": 1}, offload={"optimizer": 1, "to": "disk"}, model={"preset": "7B"})
    assert any("snapshot.every: 0" in note for note in kept.notes)


def test_parameters_on_a_disk_leave_gradients_and_buffers_in_memory() -> None:
    model = {"preset": "nano", "layers": 64, "dim": 512, "heads": 4, "kv_heads": 4, "hidden": 1376}
    block = 4 * 512**2 + 3 * 512 * 1376 + 2 * 512  # more than embedding, norm and head together
    memory, disk = (
        of({"data": 4, "zero": 3}, offload={"parameters": True, "to": to}, model=model, snapshot={"every": 0})
        for to in ("host", "disk")
    )
    own = memory.host["parameters"] // 16  # values, gradients, two moments
    assert (memory.disk, disk.disk) == (0, 12 * own) and disk.by_kind == memory.by_kind
    assert disk.host == {
        "parameters": 4 * own + PARAMETER_BUFFERS * 4 * block // 4,
        "optimizer": (DISK_BUFFERS * 3 + 2) * DISK_BUCKET_BYTES,  # values and two moments; gradients
    }
    update, passes = (note for note in disk.notes if "disk" in note or "passes" in note)
    assert f"{disk.disk / 1e9:,.1f} GB of parameters and optimizer state" in update and "of parameters more" in passes
    assert "parameters" not in memory.by_kind and not set(memory.notes) & {update, passes}


def test_torch_pins_each_shard_and_each_gradient_in_a_power_of_two() -> None:
    """On GPUs. Of a rank's shards only those of feed-forwards are none: 2,816 rows of 512, over 4 ranks, in fp32."""
    model = {"preset": "nano", "layers": 64, "dim": 512, "heads": 4, "kv_heads": 4, "hidden": 2816}
    found = setting({"data": 4, "zero": 3}, offload={"parameters": True}, model=model)
    assert isinstance(found, Setting)
    exact, pinned = (plan(replace(found, device=device)).host["parameters"] for device in ("cpu", "cuda"))
    assert pinned - exact == 2 * 64 * 3 * (2**21 - 4 * 2816 * 512 // 4)
