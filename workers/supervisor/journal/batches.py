"""The batches of events that a supervisor has in its journal, and which of them are joined.

While no dispatcher acknowledges events, each write adds a batch, up to twenty a second. A successor reads one after the other, while its
ranks' leases run. So small neighbours become one batch: 16 MiB of events are in fewer than 200.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Bytes up to which neighbours are joined. Those of the last such batch are written again with each join: 2 kB per write of the journal.
JOINED_BYTES: Final = 256 << 10
#: Batches that a join saves, at least.
LEAST_SAVED: Final = 64


@dataclass(frozen=True)
class Batch:
    """The numbers of its first and its last event, and its bytes. Its first number is its key."""

    first: int
    last: int
    size: int


def joinable(batches: Sequence[Batch]) -> list[list[Batch]]:
    """Which neighbours are to be joined; none while that would save too few. `batches`: all that are kept, in order."""
    if len(batches) <= LEAST_SAVED:
        return []
    runs: list[list[Batch]] = []
    size = JOINED_BYTES
    for batch in batches:
        size += batch.size
        if size > JOINED_BYTES:
            runs.append([])
            size = batch.size
        runs[-1].append(batch)
    return [run for run in runs if len(run) > 1] if len(batches) - len(runs) >= LEAST_SAVED else []


def joined(batches: Sequence[Batch], runs: Sequence[Sequence[Batch]]) -> list[Batch]:
    """The batches after these runs of them were joined."""
    first = {run[0]: Batch(run[0].first, run[-1].last, sum(batch.size for batch in run)) for run in runs}
    gone = {batch for run in runs for batch in run[1:]}
    return [first.get(batch, batch) for batch in batches if batch not in gone]
