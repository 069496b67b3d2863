"""The header of a complete segment: a snapshot's facts, its slices, and where they lie. Imports no torch: rank actors read it.

After the header's page come the facts as JSON, then the tensors, each from a multiple of `ALIGN` bytes on. Among the facts is the table of
the slices (`pieces`): name, offset, size, type and whole shape of each, and the bytes of an element.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from . import shared_memory

#: A tensor begins at a multiple of this many bytes.
ALIGN: Final = 64
#: In a snapshot's JSON, and in the manifest of a checkpoint made of it: whether what follows its step is still to be done.
UNFINISHED: Final = "unfinished"


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


@dataclass(frozen=True)
class StoredSlice:
    """One slice of a tensor: `bytes` of it lie from byte `start` of the segment on."""

    name: str
    offset: tuple[int, ...]
    size: tuple[int, ...]
    dtype: str  # as torch writes it
    shape: tuple[int, ...]  # of the whole tensor
    start: int
    bytes: int

    @property
    def elements(self) -> int:
        return prod(self.size)

    @property
    def itemsize(self) -> int:
        return self.bytes // max(self.elements, 1)


@dataclass(frozen=True)
class SnapshotHeader:
    """A snapshot without its tensors' content."""

    step: int
    facts: dict[str, Any]
    slices: tuple[StoredSlice, ...]


def segment_of(fds: Sequence[int], step: int) -> int | None:
    """The segment with the complete snapshot of `step`; None if there is none."""
    held = ((fd, shared_memory.read_header(fd)) for fd in fds)
    return next((fd for fd, header in held if header is not None and header.step == step), None)


def read(fd: int) -> SnapshotHeader | None:
    """The header of the segment's snapshot; None if it is empty."""
    header = shared_memory.read_header(fd)
    if header is None:
        return None
    facts: dict[str, Any] = json.loads(os.pread(fd, header.facts, shared_memory.START))
    return SnapshotHeader(header.step, facts, _slices(facts.pop("pieces"), aligned(shared_memory.START + header.facts)))


def _slices(table: Sequence[Sequence[Any]], start: int) -> tuple[StoredSlice, ...]:
    found = []
    for name, offset, size, dtype, shape, itemsize in table:
        count = prod(size) * itemsize
        found.append(StoredSlice(name, tuple(offset), tuple(size), dtype, tuple(shape), start, count))
        start += aligned(count)
    return tuple(found)
