"""Every move of a job: row and audit event change together, under the state and the lease that the mover believes in, or neither does."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.errors import IllegalMove, LeaseLost, StateChanged
from shardyard.service.jobs.transitions import Cause, move
from shardyard.service.schemas.job import Job
from shardyard.service.states import FINAL, MOVES, State
from shardyard.service.store import events, jobs, leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..conftest import Submit

LEGAL = [(before, to) for before in State for to in sorted(MOVES[before])]
WORD = Cause("tester", 1234.5, "because", "There is a reason.")


class Undone(Exception):
    """Ends a transaction that shall leave nothing."""


async def stand(tx: AsyncConnection, job: Job, state: State, lease: Lease | None = None, **columns: Any) -> None:
    """Have the job stand in a state, under a lease of 100 s or none."""
    free = {"lease_owner": None, "lease_token": None, "lease_until": None}
    await jobs.set_columns(tx, job.id, {**free, "state": state, **columns})
    assert lease is None or await leases.take(tx, lease, 100)


async def whole(store: Store, job: Job) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]]:
    """All that there is to know: the row, and the events."""
    async with store.read() as tx:
        row = await jobs.by_id(tx, job.id)
        assert row is not None
        return dict(row), [dict(event) for event in await events.after(tx, job.id, 0, 10_000)]


def lease_of(job: Job, owner: str = "dispatcher") -> Lease:
    return Lease(job.id, uuid4().hex, owner)


async def answer(tx: AsyncConnection, job: Job, before: State, to: State, token: str | None) -> type[Exception] | None:
    """How the move is refused, None if it is not."""
    try:
        await move(tx, job.id, before, to, WORD, token=token, also={"checkpoint": "elsewhere", "repairs": 7})
    except (IllegalMove, LeaseLost, StateChanged) as error:
        return type(error)
    return None


async def answered(store: Store, job: Job, before: State, to: State, token: str | None) -> type[Exception] | None:
    """The same in a transaction of its own, which commits in any case."""
    async with store.write() as tx:
        return await answer(tx, job, before, to, token)


@pytest.mark.parametrize("leased", [True, False], ids=["under a lease", "by a user"])
async def test_a_move_changes_row_and_audit_event_together(store: Store, submit: Submit, leased: bool) -> None:
    job = await submit()
    lease = lease_of(job)
    _, reported = await whole(store, job)
    for before, to in LEGAL:
        async with store.write() as tx:
            await stand(tx, job, before, lease, started_at=None, finished_at=None, eta_s=9.0, repairs=0)
            row = await jobs.by_id(tx, job.id)
            assert row is not None
            await move(tx, job.id, before, to, WORD, token=lease.token if leased else None, also={"repairs": 7})
        position = row["event_pos"] + 1
        changed = {"state": to, "reason": WORD.reason, "message": WORD.message, "event_pos": position, "repairs": 7}
        changed |= {"started_at": WORD.now} if to == State.STARTING else {}
        changed |= {"finished_at": WORD.now, "eta_s": None} if to in FINAL else {}
        data = {"state": to, "reason": WORD.reason, "message": WORD.message, "attempt": row["attempt"]}
        event = {"job_id": job.id, "position": position, "attempt": row["attempt"], "kind": "state", "ts": WORD.now}
        reported = [*reported, event | {"actor": WORD.actor, "data": data}]
        assert await whole(store, job) == (dict(row) | changed, reported)


async def test_a_move_whose_transaction_fails_leaves_nothing(store: Store, submit: Submit) -> None:
    job = await submit()
    kept = await whole(store, job)
    with pytest.raises(Undone):
        async with store.write() as tx:
            await move(tx, job.id, State.QUEUED, State.PLACING, WORD, also={"repairs": 7})
            assert await whole(store, job) == kept
            raise Undone
    assert await whole(store, job) == kept


async def test_a_job_starts_for_the_first_time_once(store: Store, submit: Submit) -> None:
    job = await submit()
    for now in (10.0, 20.0):
        async with store.write() as tx:
            await stand(tx, job, State.PLACING)
            await move(tx, job.id, State.PLACING, State.STARTING, Cause("tester", now))
    assert (await whole(store, job))[0]["started_at"] == 10.0


async def test_a_move_that_is_not_in_the_table_is_refused(store: Store, submit: Submit) -> None:
    job = await submit()
    kept = await whole(store, job)
    async with store.write() as tx:
        for before in State:
            await stand(tx, job, before)
            for to in set(State) - MOVES[before]:
                assert await answer(tx, job, before, to, None) is IllegalMove
        await stand(tx, job, State.QUEUED)
    assert await whole(store, job) == kept


async def test_a_move_from_a_state_that_has_passed_is_refused(store: Store, submit: Submit) -> None:
    """Each legal move, asked of a job that has made it already, and of one that went another way."""
    job = await submit()
    lease = lease_of(job)
    async with store.write() as tx:
        await stand(tx, job, State.QUEUED, lease)
    kept = await whole(store, job)
    async with store.write() as tx:
        for before, to in LEGAL:
            for now in {to, min(MOVES[before])}:
                await jobs.set_columns(tx, job.id, {"state": now})
                assert await answer(tx, job, before, to, None) is StateChanged
                assert await answer(tx, job, before, to, lease.token) is LeaseLost
        await jobs.set_columns(tx, job.id, {"state": State.QUEUED})
    assert await whole(store, job) == kept


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "given back"])
async def test_a_move_without_its_lease_is_refused(store: Store, submit: Submit, taken: bool) -> None:
    job = await submit()
    another = lease_of(job, "another") if taken else None
    async with store.write() as tx:
        await stand(tx, job, State.QUEUED, another)
    kept = await whole(store, job)
    async with store.write() as tx:
        for before, to in LEGAL:
            await jobs.set_columns(tx, job.id, {"state": before})
            assert await answer(tx, job, before, to, lease_of(job).token) is LeaseLost
        await jobs.set_columns(tx, job.id, {"state": State.QUEUED})
    assert await whole(store, job) == kept


async def test_a_lease_that_has_run_out_moves_its_job_until_another_takes_it(store: Store, submit: Submit) -> None:
    job = await submit()
    old, new = lease_of(job, "old"), lease_of(job, "new")
    async with store.write() as tx:
        await stand(tx, job, State.STARTING)
        assert await leases.take(tx, old, -1.0)
    assert await answered(store, job, State.STARTING, State.RUNNING, old.token) is None
    async with store.write() as tx:
        assert await leases.take(tx, new, 100)
    kept = await whole(store, job)
    assert await answered(store, job, State.RUNNING, State.SUCCEEDED, old.token) is LeaseLost
    assert await whole(store, job) == kept
    assert await answered(store, job, State.RUNNING, State.SUCCEEDED, new.token) is None


async def test_a_job_that_does_not_exist_does_not_move(store: Store, submit: Submit) -> None:
    unknown = (await submit()).model_copy(update={"id": "job-absent"})
    async with store.write() as tx:
        assert await answer(tx, unknown, State.QUEUED, State.PLACING, None) is StateChanged
        assert await answer(tx, unknown, State.QUEUED, State.PLACING, lease_of(unknown).token) is LeaseLost
    async with store.read() as tx:
        assert not await events.after(tx, unknown.id, 0, 10)


async def test_of_many_who_move_a_job_at_once_one_does(store: Store, database_url: str, submit: Submit) -> None:
    """From several processes' stores, under the lease and without one, to every state that there is a way to."""
    job = await submit()
    lease = lease_of(job)
    stores = [store, *(Store(database_url) for _ in range(3))]
    asked = [(to, token) for to in sorted(MOVES[State.RUNNING]) for token in (lease.token, None)]
    try:
        for _ in range(3):
            async with store.write() as tx:
                await stand(tx, job, State.RUNNING, lease)
            _, reported = await whole(store, job)
            moves = [answered(stores[i % 4], job, State.RUNNING, *wanted) for i, wanted in enumerate(asked)]
            answers = await asyncio.gather(*moves)
            ((won, _),) = [wanted for wanted, refusal in zip(asked, answers, strict=True) if refusal is None]
            row, after = await whole(store, job)
            assert row["state"] == won
            assert [event["data"]["state"] for event in after[len(reported) :]] == [won]
    finally:
        for other in stores[1:]:
            await other.close()
