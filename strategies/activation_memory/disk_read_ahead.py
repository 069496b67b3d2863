"""Parameters on a local disk, read into a bounded number of buffers before passes need them (ZeRO-Infinity, 2104.07857, section 6.2).

Tensors that are needed together are a group. Which group follows is learned from the passes themselves: after groups i and j comes the
one that came after them last time. This covers forward and backward passes, several micro-batches, validation and pipelines. A wrong
guess costs a read, and a group that was not read ahead is read when it is needed.

Host memory: at most B buffers of the largest group's size. While a pass computes, the next B groups are read. A group that comes again
while a buffer has it, as the last block does between the passes, is not read again.

Values that the optimizer changes are never used: `pause` and `resume` drop all buffers.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import torch

from ..memory_options import PARAMETER_BUFFERS
from .disk_buffer import DiskBuffer, Extent, add_extent
from .state_file import DiskUse, StateFile, failed, padded

#: Stands for an update in the order of groups.
_UPDATE: Final = -1


@dataclass(frozen=True)
class _Group:
    """Tensors of the file with their places in a buffer, and how they come there."""

    tensors: tuple[torch.Tensor, ...]
    places: tuple[int, ...]
    extents: tuple[Extent, ...]
    bytes: int


@dataclass
class _Slot:
    """A buffer, and the group that it has or is being read into it."""

    buffer: DiskBuffer
    group: int | None = None


@dataclass
class _Order:
    """What was needed so far, and what came after each two groups."""

    last: tuple[int, int] = (_UPDATE, _UPDATE)
    after: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, group: int) -> None:
        self.after[self.last] = group
        self.last = (self.last[1], group)

    def update(self) -> None:
        """Steps begin alike, however the one before has ended."""
        self.after[self.last] = _UPDATE
        self.last = (_UPDATE, _UPDATE)

    def expected(self, most: int) -> list[int]:
        """Up to `most` different groups that come next, the first first, up to the next update."""
        found: list[int] = []
        place = self.last
        for _ in range(2 * most):  # a group may come twice
            following = self.after.get(place, _UPDATE)
            if following == _UPDATE or len(found) == most:
                break
            if following not in found:
                found.append(following)
            place = (place[1], following)
        return found


class DiskReadAhead:
    """Groups of tensors of `file`. Reads raise `StateDiskError`."""

    def __init__(self, file: StateFile, buffers: int = PARAMETER_BUFFERS) -> None:
        self._file, self._most = file, buffers
        self._groups: list[_Group] = []
        self._slots: list[_Slot] = []
        self._order = _Order()

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(slot.buffer.bytes for slot in self._slots)

    def add(self, tensors: Sequence[torch.Tensor]) -> int:
        """The number of a new group of `tensors`, which are in the file. All groups are added before the first is used."""
        assert not self._slots
        places: list[int] = []
        extents: list[Extent] = []
        used = 0
        for tensor in tensors:
            length = padded(tensor.nbytes)
            add_extent(extents, Extent(self._file.place_of(tensor), used, length))
            places.append(used)
            used += length
        self._groups.append(_Group(tuple(tensors), tuple(places), tuple(extents), used))
        return len(self._groups) - 1

    @contextmanager
    def values(self, group: int) -> Iterator[list[torch.Tensor]]:
        """The group's tensors in a buffer, within the context. Afterwards what comes next is read."""
        slot = self._slot_with(group)
        self._wait(slot)
        self._order.add(group)
        one = self._groups[group]
        yield [slot.buffer.tensor(*pair) for pair in zip(one.tensors, one.places, strict=True)]
        self._read_expected()

    def pause(self) -> None:
        """The tensors are about to change. Wait for all reads, and forget what was read."""
        self._drop()
        self._order.update()

    def resume(self) -> None:
        """The tensors have new values. Those that are needed first are read."""
        self._drop()
        self._read_expected()

    def _slot_with(self, group: int) -> _Slot:
        """The slot that has `group`, or into which it is read now."""
        if not self._slots:
            self._open()
        slot = next((slot for slot in self._slots if slot.group == group), None)
        if slot is None:
            slot = self._slots[0]
            self._read(slot, group)
        return slot

    def _open(self) -> None:
        size = max(group.bytes for group in self._groups)
        for number in range(min(self._most, len(self._groups))):
            self._slots.append(_Slot(DiskBuffer(self._file, size, f"parameter disk {number}")))

    def _read_expected(self) -> None:
        """Read the groups that come next, as many as there are slots, and drop those that do not."""
        expected = self._order.expected(len(self._slots))
        free = [slot for slot in self._slots if slot.group not in expected]
        held = {slot.group for slot in self._slots}
        for slot, group in zip(free, (group for group in expected if group not in held), strict=False):
            self._read(slot, group)

    def _read(self, slot: _Slot, group: int) -> None:
        one = self._groups[group]
        slot.group = group
        slot.buffer.read(one.extents)
        self._file.count(DiskUse(gathered=one.bytes))

    def _drop(self) -> None:
        for slot in self._slots:
            self._wait(slot)
            slot.group = None

    def _wait(self, slot: _Slot) -> None:
        began = time.monotonic()
        try:
            slot.buffer.wait()
        except OSError as error:
            raise failed(self._file.folder, error) from error
        finally:
            self._file.count(DiskUse(gather_waited_s=time.monotonic() - began))
