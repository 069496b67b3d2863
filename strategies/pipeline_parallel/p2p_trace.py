"""Traces messages between stages: how long a schedule waits for them, and how long they were in transit.

Torch's schedules start messages by `_batch_p2p` and wait by `_wait_batch_p2p`. While a step is traced, both are replaced by
functions that also record to `step_tracer.py`; other steps have no overhead. GPipe and 1F1B send and receive in one batch, which
counts as receiving, because that takes long. A message is recorded as arrived when a wait for it returned. A sent message is waited
for only at the schedule's end, and so has no duration of its own. On a version of torch that was not tried, such waits count as
`other`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch.distributed as dist
from torch.distributed.pipelining import schedules

from ..telemetry.current import current, now
from ..telemetry.step_tracer import Category
from ..torch_version import tried

LANE: Final = "pipeline"


class Batch(list[dist.Work]):
    """Work handles that were started together at `since`."""

    category: Category = "send"
    since: Any = None


def wait_for(works: list[dist.Work]) -> None:
    """Wait for messages as torch's schedules do, so that `seen` records it."""
    schedules._wait_batch_p2p(works)


@contextmanager
def seen() -> Iterator[None]:
    """Record the messages of the schedule that runs inside."""
    if not tried():
        yield
        return
    start, wait = schedules._batch_p2p, schedules._wait_batch_p2p

    def started(operations: list[dist.P2POp], desc: str | None = None) -> Batch:
        if not operations:
            return Batch()
        since = now()
        receives = any(operation.op is dist.irecv for operation in operations)
        category: Category = "receive" if receives else "send"
        with current().tracer.span(category, f"start to {category}"):
            batch = Batch(start(operations, desc=desc))
        batch.category, batch.since = category, since if receives else None
        return batch

    def waited_for(works: list[dist.Work]) -> None:
        if not isinstance(works, Batch):  # an empty list: a schedule begins with one
            wait(works)
            return
        if not works:
            return
        with current().tracer.span(works.category, f"{works.category} {LANE}"):
            wait(works)
        current().tracer.record_async(LANE, works.category, works.category, works.since)

    setattr(schedules, "_batch_p2p", started)  # noqa: B010  (mypy has no types for them)
    setattr(schedules, "_wait_batch_p2p", waited_for)  # noqa: B010
    try:
        yield
    finally:
        setattr(schedules, "_batch_p2p", start)  # noqa: B010
        setattr(schedules, "_wait_batch_p2p", wait)  # noqa: B010
