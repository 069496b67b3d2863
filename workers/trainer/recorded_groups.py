"""Reads a dump of torch's flight recorder (format 2.x, `FlightRecorder.hpp`) into one record per process group. Imports no torch.

NCCL's operations are `scheduled` when the host has enqueued them, `started` when the device runs them (recorded only with
TORCH_NCCL_ENABLE_TIMING) and `completed`. Operations of a coalesced group share a number. Only the last of them, `coalesced`, changes its
state. gloo's are `retired` when they are done; NCCL's also after a time-out.
"""

import itertools
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from ..messages.collective_record import GroupRecord, PendingMessage
from ..messages.rank_status import BACKGROUND

#: Collectives before the oldest one not done whose names are kept. A rank may have left one that the others have not.
KEPT: Final = 8
#: Collectives whose inputs have the same size on all ranks of a group.
SAME_SIZE: Final = frozenset(
    {
        "all_reduce",
        "all_reduce_barrier",
        "allreduce_coalesced",
        "broadcast",
        "reduce",
        "all_gather",
        "all_gather_single",
        "_all_gather_base",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter",
        "reduce_scatter_single",
        "_reduce_scatter_base",
        "reduce_scatter_tensor_coalesced",
    }
)
#: `send 0->1` and `recv 1<-0`: ranks in the group, the own one first.
_MESSAGE: Final = re.compile(r"(send|recv) \d+(?:->|<-)(\d+)")

Entry = Mapping[str, Any]


def names(dump: Mapping[str, Any]) -> set[str]:
    """The names of the groups in a dump."""
    return {entry["process_group"][0] for entry in dump.get("entries", ())}


def read_dump(dump: Mapping[str, Any], groups: Mapping[str, Sequence[int]], on_gloo: bool = False) -> list[GroupRecord]:
    """A record of every group in `groups`: name → ranks in the world, by their rank in the group. Raises KeyError, ValueError.

    `on_gloo`: the job's collectives run on NCCL, and this is gloo's recorder. Both backends share a group's name, and each numbers its own.
    """
    by_group: dict[str, list[Entry]] = {}
    for entry in dump.get("entries", ()):
        name, described = entry["process_group"]
        if name in groups and described != BACKGROUND:
            by_group.setdefault(name, []).append(entry)
    found = []
    for name, entries in by_group.items():
        label = _plain_name(entries[0]["process_group"][1]) + (" (gloo)" if on_gloo else "")
        record = _record(label, groups[name], entries)
        if record is not None:
            found.append(replace(record, name=name))
    return found


def newest_s(dump: Mapping[str, Any]) -> float | None:
    """Seconds since the newest begin or end of an operation in a dump. gloo's recorder has no ends. None without operations."""
    times = [
        max(int(entry["time_created_ns"]), int(entry.get("time_discovered_completed_ns") or 0))
        for entry in dump.get("entries", ())
    ]
    return max(0.0, time.time() - max(times) / 1e9) if times else None


def _record(label: str, ranks: Sequence[int], entries: Sequence[Entry]) -> GroupRecord | None:
    """None for a group of which only messages are recorded that are done."""
    operations = _numbered(entries, "collective_seq_id", messages=False)
    messages = tuple(_pending_messages(entries, ranks))
    nccl = any(_is_nccl(entry) for entry in entries)
    if not operations and not messages and not nccl:
        return None
    place = GroupRecord(label, tuple(sorted(ranks)), max(operations, default=0), messages=messages, nccl=nccl)
    pending = min((seq for seq, several in operations.items() if not _is_done(several)), default=None)
    last = place.entered if pending is None else pending
    recent = tuple((seq, *_what(operations[seq])) for seq in sorted(operations) if last - KEPT <= seq <= last)
    if pending is None:
        return replace(place, recent=recent)
    op, size = _what(operations[pending])
    started = any(entry.get("state") == "started" for entry in operations[pending])
    since_s = _since_s(operations[pending])
    return replace(place, op=op, seq=pending, size=size, started=started, since_s=since_s, recent=recent)


def _numbered(entries: Sequence[Entry], number: str, messages: bool) -> dict[int, list[Entry]]:
    """Number → the entries of that operation: one, or those of a coalesced group."""
    found: dict[int, list[Entry]] = {}
    for entry in entries:
        if bool(entry.get("is_p2p")) == messages:
            found.setdefault(int(entry[number]), []).append(entry)
    return found


def _pending_messages(entries: Sequence[Entry], ranks: Sequence[int]) -> Iterator[PendingMessage]:
    for seq, several in _numbered(entries, "p2p_seq_id", messages=True).items():
        if _is_done(several):
            continue
        since_s = _since_s(several)  # one for all: a rank waits in what is equally old together
        for entry in several:
            match = _MESSAGE.fullmatch(_op(entry))
            if match:
                kind: Literal["send", "recv"] = "send" if match[1] == "send" else "recv"
                yield PendingMessage(kind, ranks[int(match[2])], seq, since_s)


def _is_done(several: Sequence[Entry]) -> bool:
    return any(
        entry.get("state") == "completed" or (bool(entry.get("retired")) and not _is_nccl(entry)) for entry in several
    )


def _is_nccl(entry: Entry) -> bool:
    return str(entry["profiling_name"]).startswith("nccl:")


def _op(entry: Entry) -> str:
    return str(entry["profiling_name"]).rpartition(":")[2]


def _what(several: Sequence[Entry]) -> tuple[str, str]:
    """Name and size of an operation; of a coalesced group the name of its first one, and the size of all."""
    single = [entry for entry in several if not _op(entry).endswith("coalesced")] or list(several)[:1]
    op = _op(single[0])
    if op not in SAME_SIZE:
        return op, ""
    sizes = itertools.chain.from_iterable(entry.get("input_sizes", ()) for entry in single)
    types = {str(name) for entry in single for name in entry.get("input_dtypes", ())}
    return op, f"{sum(math.prod(size) for size in sizes)} × {', '.join(sorted(types))}" if types else ""


def _since_s(several: Sequence[Entry]) -> float:
    return max(0.0, time.time() - min(int(entry["time_created_ns"]) for entry in several) / 1e9)


def _plain_name(described: str) -> str:
    return "world" if described == "default_pg" else described.removeprefix("mesh_")
