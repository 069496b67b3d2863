"""Messages between stages in a trace: what a schedule waits for, and how long messages were on their way.

Torch's schedules start messages by `_batch_p2p` and wait by `_wait_batch_p2p`. While a step is traced both are replaced by ones that say so
to `step_tracer.py`; other steps pay nothing. GPipe and 1F1B send and receive in one batch, which counts as receiving: that
is what takes long. A
message is seen to have arrived when somebody has waited for it; one that was sent is waited for at the schedule's end only, and so
has no time of its own. Where torch has these functions no more, such waits count as `other`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch.distributed as dist
from torch.distributed.pipelining import schedules

from ..telemetry.current import current, now
from ..telemetry.step_tracer import Category

LANE: Final = "pipeline"


class Batch(list[dist.Work]):
    """Works that were started together at `since`."""

    category: Category = "send"
    since: Any = None


@contextmanager
def seen() -> Iterator[None]:
    """Record the messages of the schedule that runs within."""
    start = getattr(schedules, "_batch_p2p", None)
    wait = getattr(schedules, "_wait_batch_p2p", None)
    if start is None or wait is None:
        yield
        return

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
        if not isinstance(works, Batch):  # nothing: a schedule begins with an empty list
            wait(works)
            return
        if not works:
            return
        with current().tracer.span(works.category, f"{works.category} {LANE}"):
            wait(works)
        current().tracer.record_async(LANE, works.category, works.category, works.since)

    setattr(schedules, "_batch_p2p", started)  # noqa: B010  (mypy knows them not)
    setattr(schedules, "_wait_batch_p2p", waited_for)  # noqa: B010
    try:
        yield
    finally:
        setattr(schedules, "_batch_p2p", start)  # noqa: B010
        setattr(schedules, "_wait_batch_p2p", wait)  # noqa: B010
