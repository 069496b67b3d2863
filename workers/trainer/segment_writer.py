"""Writes snapshots into a rank's segments, and restores them.

Rules that it keeps: a segment has one size, known from the shards, so that it is mapped and pinned once; only facts that outgrow
their room make it larger. A segment is complete, or empty.

The facts are padded with spaces to the length of their room, which readers of JSON skip. So a tensor has the same place in each snapshot.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any, Final

import torch

from ...strategies.param_shard import ParamShard
from ...strategies.pinned_memory import CudaPinning, Pinning
from ..snapshot import shared_memory
from ..snapshot.header import aligned
from .segment_mapping import SegmentMapping

#: Bytes for the facts beside the table of slices: 500 events of a kilobyte each, and the state of loop and optimizer.
FACTS_ROOM: Final = 512 << 10
#: The facts' room is a multiple of this many bytes.
ROUND: Final = 64 << 10


class SnapshotError(RuntimeError):
    """A snapshot does not fit the state to restore."""

    code = "snapshot_corrupt"


class _Segment:
    """A mapped segment: `room` bytes for its facts, then a place for each shard."""

    def __init__(self, mapping: SegmentMapping, room: int, shards: Sequence[ParamShard]) -> None:
        self.mapping, self.room = mapping, room
        self.places = _places(shards, mapping, shared_memory.START + room)
        self._facts = room  # bytes that may hold earlier facts

    def write_facts(self, text: bytes) -> None:
        """Write the facts, and spaces over the rest of earlier ones."""
        padded = text.ljust(self._facts)
        self.mapping.memory[shared_memory.START : shared_memory.START + len(padded)] = padded
        self._facts = len(text)

    def close(self) -> bool:
        """False if it stays mapped (`SegmentMapping.close`)."""
        self.places = []
        return self.mapping.close()


class SegmentWriter:
    """Writes one rank's shards into its segments, always the one with the older snapshot. One call at a time."""

    def __init__(
        self, fds: Sequence[int], shards: Sequence[ParamShard], device: torch.device, pinning: Pinning | None = None
    ) -> None:
        """`pinning`: by default that of a CUDA device, and none on a CPU."""
        self._fds, self._shards, self._table = list(fds), shards, _table(shards)
        self._room = _room(len(json.dumps(self._table)) + FACTS_ROOM)
        self._tensors = sum(aligned(shard.tensor.nbytes) for shard in shards)
        self._device, self._pinning = device, pinning
        self._stream: torch.cuda.Stream | None = None
        self._segments: dict[int, _Segment] = {}
        self._stuck: list[_Segment] = []  # that could not be unregistered: kept, so that they are not unmapped
        self._warned = False
        if fds and device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            self._pinning = pinning or CudaPinning(device)

    @property
    def bytes(self) -> int:
        """Bytes of all segments."""
        return len(self._fds) * self._size

    @property
    def missing(self) -> int:
        """Bytes that all segments still need, beside what is allocated."""
        return sum(max(self._size - shared_memory.allocated(fd), 0) for fd in self._fds)

    @property
    def _size(self) -> int:
        return shared_memory.START + self._room + self._tensors

    def allocate(self) -> None:
        """Allocate all segments. Raises OSError if there is not enough memory."""
        for fd in self._fds:
            shared_memory.reserve(fd, self._size)

    def ready(self) -> Any:
        """On CUDA, an event after the work that is queued now."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event

    def write(self, step: int, facts: dict[str, Any], ready: Any) -> float:
        """Copy everything after `ready` and seal it; returns seconds of processor time without those to map. Raises OSError."""
        began = time.thread_time()
        text = json.dumps(facts | {"pieces": self._table}).encode()
        fd = shared_memory.oldest(self._fds)
        shared_memory.empty(fd)
        mapping_s = -time.thread_time()
        segment = self._mapped(fd, len(text))
        mapping_s += time.thread_time()
        segment.write_facts(text)
        self._copy(segment, ready)
        shared_memory.seal(fd, shared_memory.Header(step, segment.room, segment.mapping.size))
        return time.thread_time() - began - mapping_s

    def close(self, free: bool = False) -> None:
        """Unregister and unmap all segments. `free`: also empty them and free their memory."""
        for fd in self._fds:
            self._unmap(fd)
            if free:
                shared_memory.free(fd)

    def _unmap(self, fd: int) -> None:
        segment = self._segments.pop(fd, None)
        if segment is not None and not segment.close():
            self._stuck.append(segment)

    def _mapped(self, fd: int, facts: int) -> _Segment:
        """The segment, mapped, with room for `facts` bytes. Only facts that outgrow their room map it again."""
        self._room = max(self._room, _room(2 * facts) if facts > self._room else 0)
        segment = self._segments.get(fd)
        if segment is not None and segment.room >= facts:
            return segment
        self._unmap(fd)
        shared_memory.reserve(fd, self._size)
        mapping = SegmentMapping(fd, self._size, self._pinning)
        self._warn(mapping.error)
        self._segments[fd] = _Segment(mapping, self._room, self._shards)
        return self._segments[fd]

    def _warn(self, error: int) -> None:
        """Add a line to the rank's log, once, if memory could not be pinned."""
        if error and not self._warned:
            self._warned = True
            text = (
                "snapshots are copied through the driver's buffer, which takes longer; raise the limit of locked memory"
            )
            print(f"cudaHostRegister returned error {error}: {text} (ulimit -l)", flush=True)  # noqa: T201

    @torch.no_grad()
    def _copy(self, segment: _Segment, ready: Any) -> None:
        if self._stream is None:
            for shard, place in segment.places:
                place.copy_(shard.tensor)
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(ready)
            for shard, place in segment.places:
                place.copy_(shard.tensor, non_blocking=True)
        self._stream.synchronize()


@torch.no_grad()
def restore(fds: Sequence[int], step: int, shards: Sequence[ParamShard]) -> dict[str, Any]:
    """Fill `shards` from the snapshot of `step` and return its facts. Raises `SnapshotError`."""
    for fd in fds:
        header = shared_memory.read_header(fd)
        if header is None or header.step != step:
            continue
        with contextlib.closing(SegmentMapping(fd, header.size, None)) as mapping:
            text = mapping.memory[shared_memory.START : shared_memory.START + header.facts]
            facts: dict[str, Any] = json.loads(text)
            if facts.pop("pieces") != _table(shards):
                raise SnapshotError(f"the snapshot of step {step} is of another layout or model")
            _fill(shards, mapping, aligned(shared_memory.START + header.facts))
        return facts
    raise SnapshotError(f"this rank has no snapshot of step {step}")


def _fill(shards: Sequence[ParamShard], mapping: SegmentMapping, start: int) -> None:
    for shard, place in _places(shards, mapping, start):
        shard.tensor.copy_(place)  # complete when it returns, as the mapping is not pinned


def _places(shards: Sequence[ParamShard], mapping: SegmentMapping, start: int) -> list[tuple[ParamShard, torch.Tensor]]:
    """Each shard with the tensor in `mapping` that is its copy."""
    found = []
    for shard in shards:
        if shard.tensor.numel():
            found.append((shard, mapping.tensor(start, shard.tensor)))
        start += aligned(shard.tensor.nbytes)
    return found


def _table(shards: Sequence[ParamShard]) -> list[list[Any]]:
    """The table of the shards, in the format that `header.py` reads."""
    return [
        [p.name, list(p.offset), list(p.tensor.shape), str(p.tensor.dtype), list(p.shape), p.tensor.itemsize]
        for p in shards
    ]


def _room(facts: int) -> int:
    return -(-facts // ROUND) * ROUND
