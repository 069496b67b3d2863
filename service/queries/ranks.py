"""Samples of a job's ranks, newest first, in responses below 300 kB for any number of ranks."""

from typing import Final

from sqlalchemy.engine import RowMapping

from ..schemas.rank import RankMetricsPage
from ..store import rank_samples as rows
from ..store.engine import Store
from ..store.packing.rank_sample import sample_of
from .jobs import existing

#: Ranks in one response, summed over its samples, unless it is a single sample. A sample's other fields count as `BESIDE` ranks.
MOST_NUMBERS: Final = 4096
BESIDE: Final = 10


async def samples(store: Store, job: str, *, before: int | None = None, limit: int = 100) -> RankMetricsPage:
    """Samples of a job (id or name) before place `before`, at most `limit` and as many as fit. Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        span = await rows.span(tx, job_id)
        newest = await rows.before(tx, job_id, before, 1)
        fit = min(limit, max(1, MOST_NUMBERS // (newest[0]["world_size"] + BESIDE))) if newest else 0
        found = await rows.before(tx, job_id, before, fit + 1) if fit else ()
    shown: list[RowMapping] = []
    numbers = 0
    for row in found[:fit]:
        numbers += row["world_size"] + BESIDE
        if shown and numbers > MOST_NUMBERS:  # an older one, of more ranks
            break
        shown.append(row)
    first, last = span or (None, None)
    items = [sample_of(row) for row in shown]
    more = len(found) > len(shown)
    return RankMetricsPage(items=items, first=first, last=last, next=items[-1].position if more else None)
