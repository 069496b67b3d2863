"""A rank's state file: tensors that are on a local disk between steps. It has no name, so the kernel removes it however the rank ends.

Each tensor has a place of its own, whose blocks are allocated when it is made: a full disk is found before the first step. It is also
mapped. Checkpoints, snapshots and restores read and write the mapping, as they do any tensor on the host. A step reads and writes the
blocks themselves, through buffers of its own (`disk_home.py`, `disk_read_ahead.py`).

Blocks bypass the page cache (O_DIRECT) where the file system allows it. Linux keeps both ways coherent while only one of them is in use,
or both only read: a direct read first writes dirty pages of its range, a direct write drops all of its range. The loop waits for
checkpoints and snapshots before it updates. After changes through the mapping, `flush` is called.

Mapped pages that were read or changed count as resident memory until the next step. They are a cache: the kernel takes them back when
memory is short.

A disk that fails raises `StateDiskError`. If it fails while the mapping is read, the kernel ends the process (SIGBUS).
"""

import errno
import mmap
import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

#: Places begin at, and are padded to, multiples of this number of bytes: a page (some ARM servers have 64 KiB), and at least a block of
#: every usual disk.
PAGE: Final = max(4096, mmap.PAGESIZE)
#: Bytes of address space by which the mapping grows at least. The file is sparse where it has no tensors.
_ARENA: Final = 1 << 30
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class StateDiskError(RuntimeError):
    """The disk for training state is full, or failed. The state in the file is lost, and with it the rank's."""

    def __init__(self, message: str, code: str = "state_disk_failed") -> None:
        super().__init__(message)
        self.code = code

    @property
    def facts(self) -> dict[str, Any]:
        """The cause, for the failure's event."""
        return {"cause": self.code}


@dataclass
class DiskUse:
    """Bytes that steps have read and written, seconds that their updates took, and seconds of those in which they waited for the disk.

    `gathered`: bytes of parameters that were read to be gathered, which are not in `read`. `gather_waited_s`: seconds in which passes
    waited for them.
    """

    read: int = 0
    written: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0
    gathered: int = 0
    gather_waited_s: float = 0.0


@dataclass(frozen=True)
class _Arena:
    """A part of the file from `start` on, mapped at `address`."""

    memory: mmap.mmap
    start: int
    address: int


class StateFile:
    """Tensors in one file of `folder`, which is made if it is missing. Raises `StateDiskError`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes = 0  # of all places
        self._use = DiskUse()
        self._arenas: list[_Arena] = []
        self._next = self._end = 0  # of the newest arena
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder, prefix="state-") as nameless:
                self._file = os.dup(nameless.fileno())
        except OSError as error:
            raise _unusable(folder, error) from error
        weakref.finalize(self, os.close, self._file)
        blocks = _opened_for_blocks(self._file, folder)
        self.direct = blocks is not None
        self._blocks = self._file if blocks is None else blocks
        if blocks is not None:
            weakref.finalize(self, os.close, blocks)

    def zeros_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Zeros on the disk with the dtype, shape and order in memory of `tensor`."""
        count, size = tensor.numel(), tensor.nbytes
        if not count:
            return torch.zeros_like(tensor, device="cpu")
        arena, start = self._placed(padded(size))
        flat = torch.frombuffer(arena.memory, dtype=tensor.dtype, count=count, offset=start - arena.start)
        return flat.as_strided(tensor.shape, torch.empty_like(tensor, device="meta").stride())

    def copy(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The values of `tensor` on the disk, as `dtype`, in one piece. The tensor itself if it is there already."""
        if dtype in (None, tensor.dtype) and self.holds(tensor):
            return tensor
        contiguous = torch.empty(tensor.shape, dtype=dtype or tensor.dtype, device="meta")
        return self.zeros_like(contiguous).copy_(tensor)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is in this file."""
        return self._arena_of(tensor) is not None

    def place_of(self, tensor: torch.Tensor) -> int:
        """Byte of the file at which a tensor of this file begins."""
        arena = self._arena_of(tensor)
        assert arena is not None
        return arena.start + tensor.data_ptr() - arena.address

    def read(self, into: memoryview, start: int) -> None:
        """Fill `into`, whose address and length are multiples of `PAGE`, from byte `start` on. Raises OSError."""
        done = 0
        while done < len(into):
            count = os.preadv(self._blocks, [into[done:]], start + done)
            if not count:
                raise OSError(errno.EIO, "the state file ends too early")
            done += count

    def write(self, content: memoryview, start: int) -> None:
        """Write `content`, whose address and length are multiples of `PAGE`, at byte `start`. Raises OSError."""
        done = 0
        while done < len(content):
            done += os.pwritev(self._blocks, [content[done:]], start + done)

    def flush(self, tensor: torch.Tensor) -> None:
        """Write what was changed through the mapping of a tensor, and unmap its pages. Raises `StateDiskError`."""
        arena = self._arena_of(tensor)
        assert arena is not None
        place = tensor.data_ptr() - arena.address, padded(tensor.nbytes)
        try:
            arena.memory.flush(*place)
            arena.memory.madvise(mmap.MADV_DONTNEED, *place)
        except OSError as error:
            raise failed(self.folder, error) from error

    def count(self, use: DiskUse) -> None:
        """Add what a step has used."""
        self._use.read += use.read
        self._use.written += use.written
        self._use.seconds += use.seconds
        self._use.waited_s += use.waited_s
        self._use.gathered += use.gathered
        self._use.gather_waited_s += use.gather_waited_s

    def take_use(self) -> DiskUse:
        """What was used since the call before."""
        found, self._use = self._use, DiskUse()
        return found

    def _placed(self, size: int) -> tuple[_Arena, int]:
        """Allocate `size` bytes: the arena that has them, and the byte of the file at which they begin."""
        try:
            if self._next + size > self._end:
                self._map(max(_ARENA, size, self._end))
            start = self._next
            os.posix_fallocate(self._file, start, size)
        except OSError as error:
            raise _no_room(self.folder, self.bytes, size, error) from error
        self._next += size
        self.bytes += size
        return self._arenas[-1], start

    def _map(self, size: int) -> None:
        size = -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        start, end = self._end, self._end + size
        os.ftruncate(self._file, end)
        memory = mmap.mmap(self._file, size, offset=start)
        address = torch.frombuffer(memory, dtype=torch.uint8, count=1).data_ptr()
        self._arenas.append(_Arena(memory, start, address))
        self._next, self._end = start, end

    def _arena_of(self, tensor: torch.Tensor) -> _Arena | None:
        if tensor.device.type != "cpu" or not tensor.numel():
            return None
        address = tensor.data_ptr()
        return next((one for one in self._arenas if one.address <= address < one.address + len(one.memory)), None)


def padded(size: int) -> int:
    """`size` bytes in whole pages."""
    return -(-size // PAGE) * PAGE


def _opened_for_blocks(file: int, folder: Path) -> int | None:
    """A descriptor of the same file that bypasses the page cache. None where that is not supported."""
    blocks = -1
    try:
        # Through /proc, as the file has no name. A descriptor of its own, as posix_fallocate may write single bytes.
        blocks = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        os.pwritev(blocks, [mmap.mmap(-1, PAGE)], 0)  # some file systems refuse only this
    except OSError as error:
        if blocks >= 0:
            os.close(blocks)
        if error.errno in _FULL:
            raise _no_room(folder, 0, PAGE, error) from error
        return None
    return blocks


def failed(folder: Path, error: OSError) -> StateDiskError:
    """The error of a disk that failed while the state was on it."""
    return StateDiskError(
        f"the disk of {folder} failed: {_why(error)}. The rank's training state is lost; the gang continues from its newest snapshot "
        "or checkpoint. Check the disk, or set SHARDYARD_SCRATCH to a folder of another one."
    )


def _no_room(folder: Path, held: int, size: int, error: OSError) -> StateDiskError:
    code = "state_disk_full" if error.errno in _FULL else "state_disk_failed"
    return StateDiskError(
        f"{folder} has no room for {size:,} bytes of training state beside {held:,} others of this rank: {_why(error)}. Make room, set "
        "SHARDYARD_SCRATCH to a folder of a larger disk, or use more ranks with layout.zero.",
        code,
    )


def _unusable(folder: Path, error: OSError) -> StateDiskError:
    if error.errno in _FULL:
        return _no_room(folder, 0, PAGE, error)
    return StateDiskError(
        f"{folder} cannot hold training state: {_why(error)}. Set SHARDYARD_SCRATCH to a folder that the ranks may write."
    )


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
