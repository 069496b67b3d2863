"""The memory of this machine for all its processes: what the kernel has, or the container's limit if that is less. Imports no Ray."""

from pathlib import Path
from typing import Final

_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def host_memory_bytes(root: Path = Path("/")) -> int:
    """Bytes; 0 if the machine does not say. `root` is where `/proc` and `/sys` are."""
    limits = [_kernel(root), *(_number(root / path.lstrip("/")) for path in _CGROUP_LIMITS)]
    return min((limit for limit in limits if limit), default=0)


def _kernel(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    total = next((line.split() for line in lines if line.startswith("MemTotal:")), ["", "0"])
    return int(total[1]) * 1024


def _number(path: Path) -> int:
    try:
        text = path.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0
