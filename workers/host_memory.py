"""How much memory this process may still use on its host, by each limit that applies to it. Imports no torch.

Limits are the host's memory, and that of each cgroup from the process's own to the outermost visible one, of version 1 or 2. A cgroup's
free memory includes its page cache, which the kernel gives back; it does not include shared memory, which it cannot.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The root of the file system; a test has another one.
ROOT: Final = Path("/")
#: From this many bytes on, a limit of a version 1 cgroup means none.
_NO_LIMIT: Final = 1 << 60


@dataclass(frozen=True)
class MemoryLimit:
    """`free` of `total` bytes. Processes share a limit if `key` is the same; `name` is for messages."""

    key: str
    name: str
    total: int
    free: int


@dataclass(frozen=True)
class _Version:
    """The file names of one cgroup version, and the keys of page cache in `memory.stat`."""

    limit: str
    used: str
    cache: tuple[str, ...]


_V1: Final = _Version("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))
_V2: Final = _Version("memory.max", "memory.current", ("active_file", "inactive_file"))


def memory_limits(root: Path = ROOT) -> tuple[MemoryLimit, ...]:
    """All limits of this process. Limits that cannot be read are left out."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        host = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
        return (*_of_host(root, host), *_of_cgroups(root, host))
    return ()


def total_memory(root: Path = ROOT) -> int:
    """Bytes that all processes under this one's limits may use together: the smallest limit. 0 if the machine does not say."""
    return min((limit.total for limit in memory_limits(root)), default=0)


def _of_host(root: Path, host: str) -> Iterator[MemoryLimit]:
    numbers = _numbers((root / "proc/meminfo").read_text().replace(":", ""))
    yield MemoryLimit(host, "the host's memory", numbers["MemTotal"] << 10, numbers["MemAvailable"] << 10)


def _of_cgroups(root: Path, host: str) -> Iterator[MemoryLimit]:
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            version = _V1 if controllers else _V2
            for mount, folder in _mounts(root, path, "cgroup" if controllers else "cgroup2"):
                yield from _upwards(mount, folder, version, host)


def _mounts(root: Path, path: str, kind: str) -> Iterator[tuple[Path, Path]]:
    """Where cgroups of this kind are mounted, and there the folder of cgroup `path`."""
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        mount, _, of = line.partition(" - ")
        name, _, options = of.split(" ", 2)
        if name == kind and (kind == "cgroup2" or "memory" in options.split(",")):
            inside, point = mount.split(" ")[3:5]
            top = root / point.lstrip("/")
            # In a container the mount may begin at the container's own cgroup.
            below = path if inside == "/" else path.removeprefix(inside) if path.startswith(inside) else "/"
            yield top, top / below.lstrip("/")


def _upwards(top: Path, folder: Path, version: _Version, host: str) -> Iterator[MemoryLimit]:
    """The limits of a cgroup and of all that include it."""
    while folder.is_relative_to(top):
        with contextlib.suppress(OSError, ValueError, KeyError):
            limit = (folder / version.limit).read_text().strip()
            if limit != "max" and int(limit) < _NO_LIMIT:
                identity = folder.stat()
                stat = _numbers((folder / "memory.stat").read_text())
                used = int((folder / version.used).read_text()) - sum(stat[key] for key in version.cache)
                name = f"{version.limit} of the cgroup {Path('/', folder.relative_to(top))}"
                key = f"{host} {identity.st_dev} {identity.st_ino}"
                yield MemoryLimit(key, name, int(limit), int(limit) - used)
        folder = folder.parent


def _numbers(text: str) -> Mapping[str, int]:
    return {key: int(number) for key, number, *_ in map(str.split, text.splitlines())}
