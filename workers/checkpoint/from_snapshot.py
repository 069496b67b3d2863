"""Writes a checkpoint's files from snapshots in memory, if no trainer is left to write them. Imports no torch: rank actors call it.

The files equal those of trainers (`staging_buffer.py`, `writer.py`), so that readers need not distinguish them.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence

from ..snapshot.header import StoredSlice
from ..storage.folder import Folder
from .commit import commit
from .manifest import MANIFEST, File, Manifest, TensorSlice
from .retention import folder, is_full, make_room
from .safetensors_header import dtype_name, header


def write(root: Folder, step: int, name: str, fd: int, wanted: Sequence[StoredSlice]) -> File:
    """Write a rank's file of these slices of the snapshot in segment `fd`. Raises `OSError`, `CheckpointError`.

    On a full disk, first make room: the gang is dead, so that what its saves have left is written by no rank.
    """
    path = folder(root, step)
    try:
        return _write_file(path, name, fd, wanted)
    except OSError as error:
        remove(path, [name])
        if not is_full(error):
            raise
    make_room(root, step, _edition(name))
    return _write_file(path, name, fd, wanted)


def publish(root: Folder, keep: int, manifest: Manifest) -> tuple[int, ...] | None:
    """Write the manifest, with room as above; returns the steps of all checkpoints.

    If there is no room, remove the ranks' files, too, unless the manifest may be there. Raises `OSError`, `CheckpointError`.
    """
    try:
        return commit(root, keep, manifest)[1]
    except OSError as error:
        if not is_full(error):
            raise
    path = folder(root, manifest.step)
    make_room(root, manifest.step, _edition(next(iter(manifest.files), "")))
    try:
        return commit(root, keep, manifest)[1]
    except OSError:
        with contextlib.suppress(OSError):
            if not path.has(MANIFEST):
                remove(path, [*manifest.files])
        raise


def _edition(name: str) -> str:
    """The mark of a run in the name of a rank's file."""
    return name.removesuffix(".safetensors").rpartition("-")[2]


def remove(path: Folder, names: Sequence[str]) -> None:
    """Remove files, as far as that is possible."""
    for name in names:
        with contextlib.suppress(OSError):
            path.remove(name)


def _write_file(path: Folder, name: str, fd: int, wanted: Sequence[StoredSlice]) -> File:
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
