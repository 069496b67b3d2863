"""Optimizer state on a local disk: a step reads ahead and writes behind through a bounded number of buffers (ZeRO-Infinity, 2104.07857,
sections 5.2.2 and 6.3).

While bucket i is updated in its buffer, the next buckets are read into others, and the ones before are written. With B buffers the
buckets i, i+B, i+2B, … share one (`disk_buffer.py`).

Host memory: B buffers of a bucket's values and moments. Disk traffic per step: all masters and moments once in each direction, 12 bytes
per element in fp32 with AdamW. Where the device has the values as precisely (ZeRO-3, or one dtype for all) it is 8 bytes, of moments;
where the values are on the disk alone (`shards_on_disk.py`) it is 12. The first read and the last write of a step are
not hidden. Copies between host and device go through the pinned buffers of `host_optimizer.py`.

A step that cannot read or write raises `StateDiskError`. Some buckets are then updated and others are not, so each further step raises it
too, and only another process continues.
"""

import time
from collections.abc import Sequence

import torch

from ..memory_options import DISK_BUFFERS
from .disk_buffer import DiskBuffer, Extent, add_extent
from .state_file import DiskUse, StateDiskError, StateFile, failed, padded
from .state_home import StateHome


class DiskHome(StateHome):
    """The state in a `StateFile`."""

    def __init__(self, file: StateFile, buffers: int = DISK_BUFFERS) -> None:
        self._file, self._most = file, buffers
        self._buffers: list[DiskBuffer] = []
        self._extents: list[list[Extent]] = []  # of each bucket
        self._used: list[int] = []  # bytes of each bucket's buffer that have a tensor
        self._now, self._began = DiskUse(), 0.0
        self._error: StateDiskError | None = None

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.bytes for buffer in self._buffers)

    def holds(self, tensor: torch.Tensor) -> bool:
        return self._file.holds(tensor)

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._file.copy(tensor)

    def copy_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, device="meta", requires_grad=False)

    def zeros_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._file.zeros_like(tensor)

    def open(self, buckets: Sequence[Sequence[int]]) -> None:
        sizes = [sum(padded(size) for size in bucket) for bucket in buckets]
        for number in range(min(self._most, len(sizes))):
            self._buffers.append(DiskBuffer(self._file, max(sizes), f"state disk {number}"))
        self._extents = [[] for _ in sizes]
        self._used = [0] * len(sizes)

    def place(self, bucket: int, tensor: torch.Tensor) -> torch.Tensor:
        place, length = self._used[bucket], padded(tensor.nbytes)
        if not tensor.is_meta:
            add_extent(self._extents[bucket], Extent(self._file.place_of(tensor), place, length))
        self._used[bucket] += length
        return self._buffer(bucket).tensor(tensor, place)

    def begin(self) -> None:
        if self._error is not None:
            raise self._error
        self._now, self._began = DiskUse(), time.monotonic()
        for bucket in range(min(len(self._buffers), len(self._extents))):
            self._read(bucket)

    def arrive(self, bucket: int) -> None:
        self._wait(self._buffer(bucket))

    def leave(self, bucket: int) -> None:
        self._buffer(bucket).write(self._extents[bucket])
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

    def _buffer(self, bucket: int) -> DiskBuffer:
        return self._buffers[bucket % len(self._buffers)]

    def _bytes(self, bucket: int) -> int:
        return sum(extent.length for extent in self._extents[bucket])

    def _read(self, bucket: int) -> None:
        self._buffer(bucket).read(self._extents[bucket])
        self._now.read += self._bytes(bucket)

    def _wait(self, buffer: DiskBuffer) -> None:
        began = time.monotonic()
        try:
            buffer.wait()
        except OSError as error:
            self._error = failed(self._file.folder, error)
            raise self._error from error
        finally:
            self._now.waited_s += time.monotonic() - began
