import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.memory_cgroup import memory_cgroup

from shardyard.workers.host_memory import memory_limits, total_memory

GB = 1 << 30


def host(root: Path, cgroup: str, mounts: str) -> None:
    """The files of a host of 64 GB, of which 40 GB are available."""
    for name, text in {
        "proc/sys/kernel/random/boot_id": "host-1\n",
        "proc/meminfo": f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {40 << 20} kB\nHugePages_Total: 0\n",
        "proc/self/cgroup": cgroup,
        "proc/self/mountinfo": mounts,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def cgroup(folder: Path, names: tuple[str, str], limit: str, used: int, stat: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(stat)


V2 = ("memory.max", "memory.current")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
STAT = f"anon {GB}\nshmem {2 * GB}\ninactive_file {3 * GB}\nactive_file {GB}\n"


def free(root: Path) -> dict[str, float]:
    return {limit.name: limit.free / GB for limit in memory_limits(root)}


def test_the_total_is_the_smallest_limit_of_any_cgroup_above(tmp_path: Path) -> None:
    host(tmp_path, "0::/pods/a/main\n", "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n")
    assert total_memory(tmp_path) == 64 * GB
    cgroup(tmp_path / "sys/fs/cgroup/pods", V2, str(8 * GB), 6 * GB, STAT)
    cgroup(tmp_path / "sys/fs/cgroup/pods/a", V2, str(16 * GB), 6 * GB, STAT)
    assert total_memory(tmp_path) == 8 * GB
    assert total_memory(tmp_path / "no machine") == 0
    assert total_memory() > GB // 4


def test_a_process_of_a_pod_has_the_limits_of_all_cgroups_above_it(tmp_path: Path) -> None:
    host(tmp_path, "0::/pods/a/main\n", "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n")
    top = tmp_path / "sys/fs/cgroup"
    cgroup(top / "pods/a/main", V2, "max", 6 * GB, STAT)
    cgroup(top / "pods/a", V2, str(16 * GB), 8 * GB, STAT)
    cgroup(top / "pods", V2, str(32 * GB), 20 * GB, STAT)
    assert free(tmp_path) == {
        "the host's memory": 40,
        "memory.max of the cgroup /pods/a": 16 - (8 - 4),
        "memory.max of the cgroup /pods": 32 - (20 - 4),
    }
    assert len({limit.key for limit in memory_limits(tmp_path)}) == 3


def test_version_1_beside_version_2(tmp_path: Path) -> None:
    mounts = (
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
    )
    host(tmp_path, "4:memory:/docker/x\n3:cpuset:/\n0::/\n", mounts)
    stat = f"active_file 5\ntotal_inactive_file {GB}\ntotal_active_file 0\n"
    cgroup(tmp_path / "sys/fs/cgroup/memory/docker/x", V1, str(4 * GB), 2 * GB, stat)
    cgroup(tmp_path / "sys/fs/cgroup/memory", V1, "9223372036854771712", 2 * GB, stat)
    (tmp_path / "sys/fs/cgroup/unified").mkdir()
    assert free(tmp_path) == {"the host's memory": 40, "memory.limit_in_bytes of the cgroup /docker/x": 3}


def test_a_container_that_sees_its_own_cgroup_as_the_mount_root(tmp_path: Path) -> None:
    mounts = "35 31 0:32 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    host(tmp_path, "4:memory:/docker/x/job\n", mounts)
    stat = "total_inactive_file 0\ntotal_active_file 0\n"
    cgroup(tmp_path / "sys/fs/cgroup/memory/job", V1, str(2 * GB), GB, stat)
    cgroup(tmp_path / "sys/fs/cgroup/memory", V1, str(4 * GB), GB, stat)
    assert free(tmp_path) == {
        "the host's memory": 40,
        "memory.limit_in_bytes of the cgroup /job": 1,
        "memory.limit_in_bytes of the cgroup /": 3,
    }


def test_a_host_without_cgroups_or_without_proc(tmp_path: Path) -> None:
    assert memory_limits(tmp_path) == ()
    host(tmp_path, "", "")
    assert free(tmp_path) == {"the host's memory": 40}


@pytest.fixture
def limited() -> Iterator[Path]:
    with memory_cgroup(256 << 20) as folder:
        yield folder


PROBE = """
import json, os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from shardyard.workers.host_memory import memory_limits
from shardyard.workers.snapshot import shared_memory
def mine():
    return min(limit.free for limit in memory_limits() if sys.argv[2] in limit.name and limit.total == 256 << 20)
before = mine()
(fd, _) = shared_memory.allocate()
shared_memory.reserve(fd, 64 << 20)
during = mine()
shared_memory.free(fd)
print(json.dumps([before, during, mine(), shared_memory.allocated(fd)]))
"""


def test_shared_memory_counts_in_a_real_cgroup(limited: Path) -> None:
    """A segment takes free memory from the cgroup, although the kernel counts it as page cache."""
    arguments = [sys.executable, "-c", PROBE, str(limited), limited.name]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": ""})
    before, during, after, allocated = json.loads(done.stdout)
    slack = 8 << 20
    assert 0 < before < 256 << 20
    assert abs(before - during - (64 << 20)) < slack and abs(before - after) < slack and allocated == 0
