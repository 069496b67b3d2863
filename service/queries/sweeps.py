"""Reads sweeps: one by id or name with its trials, and pages of a list."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..errors import InvalidCursor, SweepNotFound
from ..ids import parse
from ..schemas.sweep import SweepDetail, Sweeps, SweepTrial, SweepTrials
from ..store import attempts
from ..store import sweeps as rows
from ..store.engine import Store
from ..sweep_spec import Sweep

#: The standings of a trial whose state they are not.
_BY_OUTCOME: Final = ("done", "over")
#: Seconds before `since` whose changes are read once more: a transaction that was open then, and clocks that differ, hide none.
_OVERLAP_S: Final = 10.0


async def get_sweep(store: Store, id_or_name: str) -> SweepDetail:
    """The sweep of this id, or the newest of this name. Raises SweepNotFound."""
    async with store.read() as tx:
        row = await existing(tx, id_or_name)
        (found,) = await _details(tx, [row])
    return found


async def list_sweeps(store: Store, cursor: str | None = None, limit: int = 50) -> Sweeps:
    """One page of sweeps, newest first. Raises InvalidCursor."""
    if cursor is not None and parse("sweep", cursor) is None:
        raise InvalidCursor(
            f"{cursor[:80]!r} is not a cursor.", field="cursor", remedy="Use `next` of the page before."
        )
    async with store.read() as tx:
        found = await rows.page(tx, cursor, limit + 1)
        items = await _details(tx, found[:limit])
    return Sweeps(items=items, next=items[-1].id if len(found) > limit else None)


async def count_open(store: Store) -> int:
    """The number of sweeps that have not ended."""
    async with store.read() as tx:
        return await rows.count_open(tx)


async def trials(store: Store, id_or_name: str, since: float | None = None) -> SweepTrials:
    """The trials of a sweep, by number. Raises SweepNotFound.

    `since`: the `as_of` of an earlier answer; only the trials that may have changed since then, and some that have not.
    """
    async with store.read() as tx:
        as_of = await rows.now(tx)
        row = await existing(tx, id_or_name)
        found = await rows.with_jobs(tx, row["id"], metric_of(row), None if since is None else since - _OVERLAP_S)
        spent = await attempts.device_seconds(tx, [one["job_id"] for one in found if one["job_id"]], time.time())
    return SweepTrials(items=[_trial(one, spent) for one in found], as_of=as_of)


async def existing(tx: AsyncConnection, id_or_name: str) -> RowMapping:
    """The row of the sweep of this id, or of the newest of this name. Raises SweepNotFound."""
    row = None
    if "\0" not in id_or_name:
        row = await rows.by_id(tx, id_or_name) or await rows.newest_named(tx, id_or_name)
    if row is None:
        raise SweepNotFound(
            f"There is no sweep {id_or_name[:80]!r}.", remedy="See `shardyard sweeps` for the sweeps that exist."
        )
    return row


def metric_of(row: RowMapping | Mapping[str, Any]) -> str:
    """The metric that a stored sweep compares."""
    return str(row["sweep"].get("metric") or "loss")


def rungs_of(row: RowMapping | Mapping[str, Any]) -> list[int]:
    """The steps at which a stored sweep compares its trials."""
    asha = Sweep.model_validate(row["sweep"]).asha
    if asha is None:
        return []
    return asha.rungs(asha.max_steps or int(row["spec"]["train"]["steps"]))


async def _details(tx: AsyncConnection, found: Sequence[RowMapping]) -> list[SweepDetail]:
    ids, now = [row["id"] for row in found], time.time()
    counts, spent = await rows.counts(tx, ids), await rows.device_seconds(tx, ids, now)
    maximised = [row["id"] for row in found if row["sweep"].get("goal") == "maximize"]
    best = {
        row["sweep_id"]: row for row in await rows.best(tx, {row["id"]: metric_of(row) for row in found}, maximised)
    }
    of_jobs = await attempts.device_seconds(tx, [row["job_id"] for row in best.values() if row["job_id"]], now)
    trials = {sweep: _trial(row, of_jobs) for sweep, row in best.items()}
    return [_detail(row, counts.get(row["id"], {}), spent.get(row["id"], 0.0), trials.get(row["id"])) for row in found]


def _detail(
    row: RowMapping,
    counts: Mapping[tuple[str, str | None], int],
    spent: float,
    best: SweepTrial | None,
) -> SweepDetail:
    by_state: dict[str, int] = {}
    for (standing, outcome), count in counts.items():
        state = _state(standing, outcome)
        by_state[state] = by_state.get(state, 0) + count
    return SweepDetail(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        message=row["message"],
        sweep=Sweep.model_validate(row["sweep"]),
        metric=metric_of(row),
        rungs=rungs_of(row),
        trials=row["trials"],
        counts=by_state,
        best=best,
        device_s=spent,
        actor=row["actor"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        spec=row["spec"],
    )


def _trial(row: RowMapping, spent: Mapping[str, float]) -> SweepTrial:
    return SweepTrial(
        number=row["number"],
        state=_state(row["standing"], row["outcome"]),
        parameters=row["parameters"],
        job=row["job_id"],
        job_state=row["job_state"],
        step=row["step"],
        rungs=row["rungs"],
        value=row["value"],
        message=row["message"],
        device_s=spent.get(row["job_id"], 0.0),
    )


def _state(standing: str, outcome: str | None) -> Any:
    return outcome if standing in _BY_OUTCOME else standing
