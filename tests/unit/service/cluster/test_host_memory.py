"""The machine's memory is what the kernel has, or less in a container."""

from pathlib import Path

from shardyard.service.cluster.host_memory import host_memory_bytes


def machine(root: Path, kib: int, **limits: str) -> Path:
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal:       {kib} kB\nMemFree:  1 kB\n")
    for path, limit in limits.items():
        file = root / "sys/fs/cgroup" / path.replace("__", "/").replace("_max", ".max")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit)
    return root


def test_the_kernels_total(tmp_path: Path) -> None:
    assert host_memory_bytes(machine(tmp_path, 2048)) == 2 << 20
    assert host_memory_bytes(machine(tmp_path / "free", 2048, memory_max="max\n")) == 2 << 20


def test_a_containers_limit(tmp_path: Path) -> None:
    assert host_memory_bytes(machine(tmp_path, 2048, memory_max="1048576\n")) == 1 << 20


def test_a_machine_that_does_not_say(tmp_path: Path) -> None:
    assert host_memory_bytes(tmp_path) == 0


def test_this_machine_says() -> None:
    assert host_memory_bytes() > 1 << 28
