"""Binds the trainer of a GPU rank to cores beside its GPU: an equal share of those of the GPU's NUMA node.

The other GPUs of that NUMA node have the other shares, whether ranks use them or not, so that no rank needs to know of another. If a
container has a CPU set of its own, only GPUs that this container can use have shares.
Memory follows the cores: Linux allocates a page on the NUMA node of the core that first writes to it.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

_SYSFS: Final = Path("/sys")


@dataclass(frozen=True)
class CpuShare:
    """The CPUs of one GPU. `cores`: how many physical cores they are; the hardware threads of a core stay together."""

    numa_node: int
    cpus: frozenset[int]
    cores: int


def bind_beside(device: torch.device) -> CpuShare | None:
    """Bind this process, all its threads included, to its GPU's share. None, and no change, where the share is unknown."""
    share = share_of(_pci_address(device), os.sched_getaffinity(0), usable=usable_gpus())
    if share is not None:
        bind(share)
        print(f"bound to {share.cores} cores of NUMA node {share.numa_node}")  # noqa: T201  (into the rank's log)
    return share


def bind(share: CpuShare) -> None:
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), share.cpus)
        except ProcessLookupError:  # it has ended meanwhile
            continue
    torch.set_num_threads(share.cores)


def _pci_address(device: torch.device) -> str:
    """The GPU's address in sysfs; empty if this build of torch does not report it."""
    found: Any = torch.cuda.get_device_properties(device)
    try:
        return f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    except AttributeError:
        return ""


def usable_gpus() -> frozenset[str]:
    """The PCI addresses of the GPUs that this container can use, also those that Ray hides from this rank. Empty without NVML."""
    try:
        import pynvml as nvml
    except ImportError:
        return frozenset()
    try:
        nvml.nvmlInit()
        try:
            handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            found = [nvml.nvmlDeviceGetPciInfo(handle) for handle in handles]
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return frozenset()
    return frozenset(f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0" for pci in found)


def share_of(
    gpu: str, allowed: Collection[int], sysfs: Path = _SYSFS, usable: Collection[str] = frozenset()
) -> CpuShare | None:
    """The share of the GPU with this PCI address of the `allowed` CPUs. None if sysfs does not say, or if there are too few cores.

    `usable`: the GPUs that this container can use, as far as they are known. sysfs has all of the machine's.
    """
    devices = sysfs / "bus/pci/devices"
    own = devices / gpu
    node = _number(own / "numa_node")
    if not gpu or node is None or node < 0:
        return None
    kind = (_text(own / "vendor"), _text(own / "class"))
    same_kind = (one for one in devices.iterdir() if (_text(one / "vendor"), _text(one / "class")) == kind)
    peers = sorted(one.name for one in same_kind if _number(one / "numa_node") == node)
    local = parse_cpus(_text(own / "local_cpulist"))
    # Containers without CPU sets of their own may all use all CPUs, and other containers' GPUs take their shares.
    if gpu in usable and not local <= set(allowed):
        peers = [one for one in peers if one in usable]
    cores = _cores(local & set(allowed), sysfs)
    count, place = len(peers), peers.index(gpu)
    mine = cores[len(cores) * place // count : len(cores) * (place + 1) // count]
    if len(cores) < count:
        return None
    return CpuShare(node, frozenset(cpu for core in mine for cpu in core), len(mine))


def _cores(cpus: Collection[int], sysfs: Path) -> list[tuple[int, ...]]:
    """The CPUs by physical core."""
    found = set()
    for cpu in cpus:
        siblings = parse_cpus(_text(sysfs / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")) | {cpu}
        found.add(tuple(sorted(siblings & set(cpus))))
    return sorted(found)


def parse_cpus(text: str) -> set[int]:
    """The CPUs of a list as the kernel writes it, such as `0-3,8,10-11`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else None
