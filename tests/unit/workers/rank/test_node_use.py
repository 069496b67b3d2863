"""What this node uses, by its own `/proc`."""

from pathlib import Path

import pytest

from shardyard.workers.messages.system_metrics import NODE, Rates
from shardyard.workers.rank import node_use
from shardyard.workers.rank.node_use import NodeUse, _disks, _interfaces


def test_two_readings_of_a_real_node_have_every_value_that_each_machine_has(tmp_path: Path) -> None:
    node, rates = NodeUse(tmp_path / "not" / "there"), Rates()
    first, second = (rates.of(node.read(), now) for now in (0.0, 1.0))
    always = {"memory_used", "memory_available", "disk_full"}
    assert always <= first.keys() <= NODE.keys()
    assert always | {"cpu"} <= second.keys() <= NODE.keys()
    assert 0 < second["disk_full"] <= 100
    assert second["memory_used"] > 1 << 20


def test_of_networks_those_with_a_device_count(tmp_path: Path) -> None:
    (tmp_path / "eth0" / "device").mkdir(parents=True)
    assert list(_interfaces(["lo", "docker0", "eth0"], tmp_path)) == ["eth0"]
    assert list(_interfaces(["lo", "veth7"], tmp_path)) == ["veth7"], "in a container"


def test_bytes_of_a_logical_volume_or_a_partition_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "nvme0n1" / "device").mkdir(parents=True)
    (tmp_path / "dm-0").mkdir()
    (tmp_path / "md127").mkdir()
    assert list(_disks(["nvme0n1", "nvme0n1p1", "dm-0", "md127"], tmp_path)) == ["nvme0n1"]


def test_a_machine_without_a_readable_proc_has_the_other_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sandbox may hide `/proc/stat`, `/proc/diskstats` or `/proc/net/dev`, and psutil raises an error for each."""
    monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path))
    monkeypatch.setattr("os.path.exists", lambda path: not str(path).startswith("/sys/block"))
    found = NodeUse(tmp_path).read()
    assert {"memory_used", "disk_full"} <= found.values.keys()
    assert found.counters == {}


def test_a_disk_that_cannot_be_read_leaves_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(_: Path) -> None:
        raise OSError("Stale file handle")

    monkeypatch.setattr(node_use.shutil, "disk_usage", fails)
    found = NodeUse(tmp_path).read()
    assert "disk_full" not in found.values
    assert "memory_used" in found.values
