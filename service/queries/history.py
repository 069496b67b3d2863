"""A job's history, newest first, in pages.

Each kind of event is read from its own index, so that a page costs the same with a million validations between its entries.
"""

from typing import Any, Final

from ..schemas.history import HistoryEntry, HistoryPage
from ..store import events as event_rows
from ..store.engine import Store
from .jobs import existing

KINDS: Final = ("state", "checkpoint", "incident", "repair", "reshard", "fault")
#: Fields of an incident that a history entry leaves out; the incidents' own query returns them.
_LONG: Final = frozenset({"stacks", "waiting", "nccl_ras", "log"})


async def history(store: Store, job: str, *, before: int | None = None, limit: int = 100) -> HistoryPage:
    """Events of a job (id or name) before position `before`, newest first. Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        rows = [row for kind in KINDS for row in await event_rows.of_kind_before(tx, job_id, kind, before, limit + 1)]
    rows.sort(key=lambda row: int(row["position"]), reverse=True)
    items = [
        HistoryEntry(
            position=row["position"], ts=row["ts"], attempt=row["attempt"], kind=row["kind"], data=_short(row["data"])
        )
        for row in rows[:limit]
    ]
    return HistoryPage(items=items, next=items[-1].position if len(rows) > limit else None)


def _short(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in _LONG}
