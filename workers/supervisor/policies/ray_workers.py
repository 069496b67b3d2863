"""Why Ray Train has started its workers again, as a failure that is reported and does not end the gang."""

from collections.abc import Sequence
from typing import Final

from ...messages.rank_event import RayWorkerFailure, RayWorkersFailedEvent
from .failures import Failure

#: Code of the cause.
CAUSE: Final = "ray_worker_failed"


def worker_failure(event: RayWorkersFailedEvent, nodes: Sequence[str | None]) -> Failure:
    """The failure of the worker that failed first, as far as Ray Train shows it. `nodes`: that of each rank of the gang."""
    if not event.failures:
        return Failure(CAUSE, None, event.message)
    first = next((one for one in event.failures if not _is_secondary(one)), event.failures[0])
    others = [str(one.worker) for one in event.failures if one is not first]
    too = f"; worker{'s' if len(others) > 1 else ''} {', '.join(others)} failed, too" if others else ""
    rank = first.rank if first.rank in range(len(nodes)) else None
    node = None if rank is None else nodes[rank]
    return Failure(CAUSE, rank, f"worker {first.worker} of Ray Train: {first.message}{too}", node, first.traceback)


def _is_secondary(one: RayWorkerFailure) -> bool:
    return Failure("exception", one.rank, one.message, traceback=one.traceback).secondary
