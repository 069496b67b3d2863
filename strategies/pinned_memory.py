"""Host memory that is pinned, so that a CUDA device copies into it and out of it directly.

torch's own pinned memory is made in sizes that are powers of two: up to twice what a large buffer needs.
"""

import contextlib
import mmap
import weakref
from typing import Protocol

import torch


class Pinning(Protocol):
    """Pins host memory. Both methods return 0, or the number of an error."""

    def register(self, address: int, size: int) -> int: ...

    def unregister(self, address: int) -> int: ...


class CudaPinning:
    """Pins for CUDA. The numbers are those of `cudaError_t`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def register(self, address: int, size: int) -> int:
        with torch.cuda.device(self._device):  # the current device of a new thread is device 0
            code = int(torch.cuda.cudart().cudaHostRegister(address, size, 0))
            if code:
                self._clear()
        return code

    def unregister(self, address: int) -> int:
        with torch.cuda.device(self._device):
            return int(torch.cuda.cudart().cudaHostUnregister(address))

    def _clear(self) -> None:
        """Clear the runtime's last error of this thread, which the next kernel would report as its own."""
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=self._device)


class PinnedMemory:
    """`content`: host memory as a flat tensor of bytes, pinned for as long as this object lives. `error`: why it is not; 0: it is.

    Memory that cannot be pinned costs speed and no run.
    """

    def __init__(self, size: int, pinning: Pinning) -> None:
        """`size`: at least one byte. Raises OSError if there is no memory left."""
        self.content = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)  # whole pages, of this memory alone
        address = self.content.data_ptr()
        self.error = pinning.register(address, size)
        if not self.error:
            weakref.finalize(self, pinning.unregister, address).atexit = False  # then the device's context may be gone
