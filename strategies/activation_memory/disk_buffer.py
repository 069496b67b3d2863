"""Buffers between a state file and what computes: pages of their own, as reads and writes without the page cache need them.

Each buffer has a thread, which does the buffer's reads and writes in the order in which they were given: so a buffer is written before
it is read into again, and nothing else orders them. The kernel splits a transfer of some megabytes into requests of its own, so few
threads fill the queue of a disk.

The memory is not pinned. A child of the process does not have it: a fork while the disk writes into private memory may leave what was
read to the child alone (open(2), notes on O_DIRECT). A user's data source may fork at any moment.
"""

import mmap
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from .state_file import PAGE, StateFile


@dataclass(frozen=True)
class Extent:
    """`length` bytes from `start` of the file on, and from `place` of a buffer on. All are multiples of `PAGE`."""

    start: int
    place: int
    length: int

    def joined(self, other: "Extent") -> "Extent | None":
        """Both as one, if `other` follows in the file and in the buffer."""
        if (other.start, other.place) != (self.start + self.length, self.place + self.length):
            return None
        return Extent(self.start, self.place, self.length + other.length)


def add_extent(extents: list[Extent], extent: Extent) -> None:
    """Add to what is read or written together; as one with the last of them, if both are one piece."""
    assert extent.start % PAGE == 0, "parts of a tensor begin at multiples of a page"
    joined = extents[-1].joined(extent) if extents else None
    extents[-1:] = [joined] if joined else [*extents[-1:], extent]


class DiskBuffer:
    """`size` bytes of memory, at least a page, for parts of `file`."""

    def __init__(self, file: StateFile, size: int, name: str) -> None:
        self._file = file
        self._memory = mmap.mmap(-1, max(PAGE, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_DONTFORK)
        self._thread = ThreadPoolExecutor(1, name)
        self._given: deque[Future[None]] = deque()  # reads and writes whose end was not waited for

    @property
    def bytes(self) -> int:
        return len(self._memory)

    def tensor(self, like: torch.Tensor, place: int) -> torch.Tensor:
        """The memory from byte `place` on as a tensor with the dtype, shape and order in memory of `like`."""
        flat = torch.frombuffer(self._memory, dtype=like.dtype, count=like.numel(), offset=place)
        return flat.as_strided(like.shape, like.stride())

    def read(self, extents: Sequence[Extent]) -> None:
        """Start to read `extents` into their places."""
        self._give(extents, self._file.read)

    def write(self, extents: Sequence[Extent]) -> None:
        """Start to write `extents` from their places."""
        self._give(extents, self._file.write)

    def wait(self) -> None:
        """Wait for all reads and writes. Raises OSError."""
        while self._given:
            self._given.popleft().result()

    def _give(self, extents: Sequence[Extent], transfer: Callable[[memoryview, int], None]) -> None:
        memory = memoryview(self._memory)

        def work() -> None:
            for one in extents:
                transfer(memory[one.place : one.place + one.length], one.start)

        self._given.append(self._thread.submit(work))
