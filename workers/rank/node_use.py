"""What all processes of this node use: CPUs, memory, disks, network. What cannot be read is left out."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..host_memory import memory_limits
from ..messages.system_metrics import Reading

_NETWORKS: Final = Path("/sys/class/net")
_DISKS: Final = Path("/sys/block")
#: What psutil raises where a sandbox hides a file of `/proc`, or the file has another form.
_UNREADABLE: Final = (OSError, ValueError, NotImplementedError)


class NodeUse:
    """`folder`: a path on the disk whose fill is read; it need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> Reading:
        """Counters and values of `system_metrics.NODE`. May wait for a disk that does not answer."""
        found = Reading()
        for part in (_read_cpus, _read_memory, _read_disks, _read_networks):
            with contextlib.suppress(*_UNREADABLE):
                part(found)
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(_existing(self.folder))
            # as df does: blocks that are reserved for root are neither used nor free
            found.values["disk_full"] = 100.0 * disk.used / max(1, disk.used + disk.free)
        return found


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next((one for one in (path, *path.parents) if one.exists()), Path("/"))


def _read_cpus(found: Reading) -> None:
    import psutil

    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + times.irq + times.softirq
    found.counters["cpu"] = 100.0 * busy / (os.cpu_count() or 1)


def _read_memory(found: Reading) -> None:
    limits = memory_limits()
    if not limits:
        return
    host, *groups = limits
    found.values |= {"memory_used": float(host.total - host.free), "memory_available": float(host.free)}
    if groups:
        least = min(groups, key=lambda limit: limit.total)
        found.values |= {"memory_limit": float(least.total), "memory_limit_used": float(least.total - least.free)}


def _read_disks(found: Reading) -> None:
    import psutil

    every = psutil.disk_io_counters(perdisk=True)
    disks = [every[name] for name in _disks(list(every))]
    if disks:
        found.counters["disk_read"] = float(sum(one.read_bytes for one in disks))
        found.counters["disk_write"] = float(sum(one.write_bytes for one in disks))


def _disks(names: list[str], root: Path = _DISKS) -> Iterator[str]:
    """The disks of devices: a partition, a logical volume or a RAID would count their bytes again."""
    yield from (name for name in names if (root / name.replace("/", "!") / "device").exists())


def _read_networks(found: Reading) -> None:
    import psutil

    every = psutil.net_io_counters(pernic=True)
    counts = [every[name] for name in _interfaces(list(every))]
    if counts:
        found.counters["network_receive"] = float(sum(one.bytes_recv for one in counts))
        found.counters["network_send"] = float(sum(one.bytes_sent for one in counts))


def _interfaces(names: list[str], root: Path = _NETWORKS) -> Iterator[str]:
    """The interfaces of devices: a bridge or a tunnel would count their bytes again. In a container, all but the loopback."""
    devices = [name for name in names if (root / name / "device").exists()]
    yield from devices or (name for name in names if name != "lo")
