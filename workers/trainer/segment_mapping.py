"""A trainer's mapping of a segment, pinned on CUDA: registered once when it is mapped, and unregistered before it is unmapped.

Rules that it keeps: memory that the device may still write to is never unmapped; memory that cannot be pinned costs speed and no run.
"""

from typing import Any

import torch

from ...strategies.pinned_memory import Pinning
from ..snapshot import shared_memory


class SegmentMapping:
    """The first `size` bytes of segment `fd`, which are allocated. `error`: why they are not pinned; 0: they are, or need not be."""

    def __init__(self, fd: int, size: int, pinning: Pinning | None) -> None:
        """Raises OSError if there is no address space left."""
        self.memory: Any = shared_memory.mapped(fd, size)
        self.size = size
        self._pinning = pinning
        self._address = torch.frombuffer(self.memory, dtype=torch.uint8).data_ptr()
        self.error = 0 if pinning is None else pinning.register(self._address, size)
        self._pinned = pinning is not None and not self.error

    def tensor(self, start: int, like: torch.Tensor) -> torch.Tensor:
        """The bytes from `start` on as a tensor with the type and shape of `like`. Drop it before `close`."""
        flat = torch.frombuffer(self.memory, dtype=like.dtype, count=like.numel(), offset=start)
        return flat.view(like.shape)

    def close(self) -> bool:
        """Unregister and unmap. Call it when no copy is running. False: it is still registered, and so still mapped."""
        if self._pinned and self._pinning is not None:
            if self._pinning.unregister(self._address):
                return False
            self._pinned = False
        self.memory.close()
        return True
