"""Writes a checkpoint's files from snapshots in memory, if no trainer is left to write them. Imports no torch: rank actors call it.

The files equal those of trainers (`staging_buffer.py`, `writer.py`), so that readers need not distinguish them.
"""

import hashlib
import os
from collections.abc import Sequence

from ..snapshot.header import StoredSlice
from ..storage.folder import Folder
from .manifest import File, TensorSlice
from .safetensors_header import dtype_name, header


def write_file(path: Folder, name: str, fd: int, wanted: Sequence[StoredSlice]) -> File:
    """Write a rank's file of these slices of the snapshot in segment `fd`. Raises `OSError`, `CheckpointError`."""
    wanted = sorted(wanted, key=lambda one: -one.itemsize)
    begins, start = header((one.name, dtype_name(one.name, one.dtype), one.size, one.bytes) for one in wanted)
    content = bytearray(start + sum(one.bytes for one in wanted))
    content[:start] = begins
    slices = []
    for one in wanted:
        _read_into(memoryview(content)[start : start + one.bytes], fd, one.start)
        slices.append(TensorSlice(one.name, one.offset, one.size, start))
        start += one.bytes
    path.write(name, memoryview(content))
    return File(len(content), hashlib.sha256(content).hexdigest(), tuple(slices))


def _read_into(room: memoryview, fd: int, start: int) -> None:
    """Fill `room` from byte `start` of `fd`. A single read returns at most 2 GB."""
    while room:
        got = os.preadv(fd, [room], start)
        if not got:
            raise OSError("the snapshot ends before its last tensor")
        room, start = room[got:], start + got
