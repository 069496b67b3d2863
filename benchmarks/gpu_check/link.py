"""The link between host and device: what copies of pinned memory reach, the measure for snapshots, checkpoints and offload."""

import time
from dataclasses import dataclass

import torch

from .checks import Place

GIB = 2**30


@dataclass(frozen=True)
class Link:
    """Bytes per second of large copies of pinned memory; on a CPU of copies in memory."""

    to_host: float
    to_device: float


def link(at: Place, tries: int = 3) -> Link:
    """The best of some tries."""
    device = torch.zeros(at.sizes.copy_bytes, dtype=torch.uint8, device=at.device)
    host = torch.zeros(at.sizes.copy_bytes, dtype=torch.uint8, pin_memory=at.cuda)
    return Link(*(max(_rate(at, *pair) for _ in range(tries)) for pair in ((host, device), (device, host))))


def _rate(at: Place, to: torch.Tensor, source: torch.Tensor) -> float:
    at.synchronize()
    began = time.perf_counter()
    to.copy_(source, non_blocking=True)
    at.synchronize()
    return source.nbytes / max(time.perf_counter() - began, 1e-9)
