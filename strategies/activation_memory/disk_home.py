"""Optimizer state on a local disk: a step reads ahead and writes behind through a bounded number of buffers (ZeRO-Infinity, 2104.07857,
sections 5.2.2 and 6.3).

While bucket i is updated in its buffer, the next buckets are read into others, and the ones before are written. With B buffers the
buckets i, i+B, i+2B, … share one. Each buffer has a thread, which does its reads and writes in the order in which they were given: so
a buffer is written before it is read into again, and nothing else orders them. The kernel splits a transfer of some megabytes into
requests of its own, so few threads fill the queue of a disk.

Host memory: B buffers of a bucket's values and moments. Disk traffic per step: all masters and moments once in each direction, 12 bytes
per element in fp32 with AdamW. Where the device has the values as precisely (ZeRO-3, or one dtype for all) it is 8 bytes, of moments. The
first read and the last write of a step are not hidden.

The buffers are pages of their own, as direct reads and writes need them. They are not pinned: copies between host and device go through
the pinned buffers of `host_optimizer.py`.

A step that cannot read or write raises `StateDiskError`. Some buckets are then updated and others are not, so each further step raises it
too, and only another process continues.
"""

import mmap
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from ..memory_options import DISK_BUFFERS
from .state_file import PAGE, DiskUse, StateDiskError, StateFile, failed
from .state_home import StateHome


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


@dataclass
class _Buffer:
    """Memory for one bucket at a time, and its thread."""

    memory: mmap.mmap
    thread: ThreadPoolExecutor
    given: deque[Future[None]] = field(default_factory=deque)  # reads and writes whose end was not waited for

    def run(self, work: Callable[[], None]) -> None:
        self.given.append(self.thread.submit(work))

    def wait(self) -> None:
        """Wait for all that was given. Raises OSError."""
        while self.given:
            self.given.popleft().result()


class DiskHome(StateHome):
    """The state in a `StateFile`."""

    def __init__(self, file: StateFile, buffers: int = DISK_BUFFERS) -> None:
        self._file, self._most = file, buffers
        self._buffers: list[_Buffer] = []
        self._extents: list[list[Extent]] = []  # of each bucket
        self._used: list[int] = []  # bytes of each bucket's buffer that have a tensor
        self._now, self._began = DiskUse(), 0.0
        self._error: StateDiskError | None = None

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(len(buffer.memory) for buffer in self._buffers)

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._file.copy(tensor)

    def copy_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, device="meta", requires_grad=False)

    def zeros_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._file.zeros_like(tensor)

    def open(self, buckets: Sequence[Sequence[int]]) -> None:
        sizes = [sum(_padded(size) for size in bucket) for bucket in buckets]
        for number in range(min(self._most, len(sizes))):
            thread = ThreadPoolExecutor(1, f"state disk {number}")
            memory = mmap.mmap(-1, max(PAGE, *sizes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._buffers.append(_Buffer(memory, thread))
        self._extents = [[] for _ in sizes]
        self._used = [0] * len(sizes)

    def place(self, bucket: int, tensor: torch.Tensor) -> torch.Tensor:
        place, length = self._used[bucket], _padded(tensor.nbytes)
        if not tensor.is_meta:
            self._transfer(bucket, Extent(self._file.place_of(tensor), place, length))
        self._used[bucket] += length
        memory = self._buffer(bucket).memory
        flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=place)
        return flat.as_strided(tensor.shape, tensor.stride())

    def begin(self) -> None:
        if self._error is not None:
            raise self._error
        self._now, self._began = DiskUse(), time.monotonic()
        for bucket in range(min(len(self._buffers), len(self._extents))):
            self._read(bucket)

    def arrive(self, bucket: int) -> None:
        self._wait(self._buffer(bucket))

    def leave(self, bucket: int) -> None:
        memory = memoryview(self._buffer(bucket).memory)
        self._give(bucket, lambda one: self._file.write(memory[one.place : one.place + one.length], one.start))
        self._now.written += self._bytes(bucket)

    def follow(self, bucket: int) -> None:
        if bucket + len(self._buffers) < len(self._extents):
            self._read(bucket + len(self._buffers))

    def end(self) -> None:
        for buffer in self._buffers:
            self._wait(buffer)
        self._now.seconds = time.monotonic() - self._began
        self._file.count(self._now)

    def changed(self, tensor: torch.Tensor) -> None:
        self._file.flush(tensor)

    def _buffer(self, bucket: int) -> _Buffer:
        return self._buffers[bucket % len(self._buffers)]

    def _transfer(self, bucket: int, extent: Extent) -> None:
        """Add what is read and written when a step has this bucket."""
        assert extent.start % PAGE == 0, "parts of a tensor begin at multiples of a page"
        extents = self._extents[bucket]
        joined = extents[-1].joined(extent) if extents else None
        extents[-1:] = [joined] if joined else [*extents[-1:], extent]

    def _bytes(self, bucket: int) -> int:
        return sum(extent.length for extent in self._extents[bucket])

    def _read(self, bucket: int) -> None:
        memory = memoryview(self._buffer(bucket).memory)
        self._give(bucket, lambda one: self._file.read(memory[one.place : one.place + one.length], one.start))
        self._now.read += self._bytes(bucket)

    def _give(self, bucket: int, transfer: Callable[[Extent], None]) -> None:
        """Let the thread of the bucket's buffer transfer its extents."""
        extents = self._extents[bucket]

        def work() -> None:
            for extent in extents:
                transfer(extent)

        self._buffer(bucket).run(work)

    def _wait(self, buffer: _Buffer) -> None:
        began = time.monotonic()
        try:
            buffer.wait()
        except OSError as error:
            self._error = failed(self._file.folder, error)
            raise self._error from error
        finally:
            self._now.waited_s += time.monotonic() - began


def _padded(size: int) -> int:
    return -(-size // PAGE) * PAGE
