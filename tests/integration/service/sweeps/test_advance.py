"""One sweep, step by step: what is due is done by the dispatcher that finds it, also for the second time."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S
from harness.stored_checkpoints import checkpoint_path, save_checkpoint

from shardyard.service.database_errors import DatabaseError, DatabaseUnreachable
from shardyard.service.errors import InvalidSpec, JobDeleted, JobInUse, SweepEnded, SweepNotFound
from shardyard.service.jobs import submit as job_submitting
from shardyard.service.jobs.delete import delete
from shardyard.service.queries import jobs
from shardyard.service.queries import sweeps as queries
from shardyard.service.settings import Settings
from shardyard.service.spec import kind_of
from shardyard.service.states import State
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import removals
from shardyard.service.store import steps as step_rows
from shardyard.service.store import sweeps as rows
from shardyard.service.store.engine import Store
from shardyard.service.sweeps import advance as advancing
from shardyard.service.sweeps.advance import Advance
from shardyard.service.sweeps.lease import SweepLeaseLost, SweepLeases
from shardyard.service.sweeps.optuna_search import Study
from shardyard.service.sweeps.submit import cancel

from ..conftest import Submit
from .learning import advance, change, counted, step, submit_sweep, trials_of

SWEEP = {"parameters": {"train.optimizer.lr": [0.1, 0.2]}, "search": "grid", "asha": {"min_steps": 3}}


async def test_a_submission_that_was_not_noted_gives_the_same_job(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    assert await advance(store, settings, sweep)
    before = [one.job for one in await trials_of(store, sweep)]
    await change(store, sweep, 1, {"due": "submit", "job_id": None})
    assert await advance(store, settings, sweep)
    assert [one.job for one in await trials_of(store, sweep)] == before
    assert len((await jobs.list_jobs(store)).items) == 2


@pytest.mark.parametrize("due", ["pause", "cancel"])
@POSTGRESQL_IN_FULL
async def test_what_is_due_is_done_once_more_without_harm(store: Store, settings: Settings, due: str) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    for _ in range(2):
        await change(
            store, sweep, 0, {"standing": "paused" if due == "pause" else "over", "outcome": "stopped", "due": due}
        )
        assert await advance(store, settings, sweep)
    job = await jobs.get_job(store, (await trials_of(store, sweep))[0].job or "")
    assert job.state == (State.PAUSED if due == "pause" else State.CANCELLED)
    if due == "pause":
        for _ in range(2):
            await change(store, sweep, 0, {"standing": "active", "due": "resume"})
            assert await advance(store, settings, sweep)
        assert (await jobs.get_job(store, job.id)).state == State.QUEUED


async def test_a_cancelled_sweep_leaves_no_job_whose_submission_was_not_noted(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    await change(store, sweep, 1, {"due": "submit", "job_id": None})
    await cancel(store, sweep.id)
    while (found := await queries.get_sweep(store, sweep.id)).finished_at is None:
        await advance(store, settings, sweep)
    assert (found.state, found.counts) == ("cancelled", {"cancelled": 2})
    assert {job.state for job in (await jobs.list_jobs(store)).items} == {State.CANCELLED}


@pytest.mark.parametrize("due", ["pause", "cancel"])
@POSTGRESQL_IN_FULL
async def test_a_trial_that_ended_before_it_was_stopped_counts_as_it_ended(
    store: Store, settings: Settings, due: str
) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    job = (await trials_of(store, sweep))[0].job or ""
    async with store.write() as tx:
        await job_rows.set_columns(tx, job, {"state": "succeeded", "summary": {"last_loss": 1.5}})
    stopped = {"pause": {"standing": "paused"}, "cancel": {"standing": "over", "outcome": "stopped"}}[due]
    await change(store, sweep, 0, {**stopped, "rungs": [2.0], "value": 2.0, "due": due})
    for _ in range(2):
        await advance(store, settings, sweep)
    one = (await trials_of(store, sweep))[0]
    assert (one.state, one.value) == ("succeeded", 1.5)


@pytest.mark.parametrize(
    ("command", "checkpoint", "warns"), [(["true"], None, True), (["true"], "/saved", False), (None, None, False)]
)
@POSTGRESQL_IN_FULL
async def test_a_trial_that_continues_without_a_checkpoint_of_its_program_says_so(
    store: Store, settings: Settings, command: list[str] | None, checkpoint: str | None, warns: bool
) -> None:
    parameters = {"resources.env.LR": ["0.1", "0.2"]}
    asha = {"min_steps": 3, **({} if command is None else {"max_steps": 9})}
    part = {**SWEEP, "parameters": parameters, "asha": asha, "metric": "loss"}
    sweep = await submit_sweep(store, settings, part, command=command)
    await advance(store, settings, sweep)
    async with store.write() as tx:
        job = (await trials_of(store, sweep))[0].job or ""
        await job_rows.set_columns(tx, job, {"state": "paused", "checkpoint": checkpoint})
    await change(store, sweep, 0, {"standing": "active", "rungs": [2.0], "value": 2.0, "due": "resume"})
    await advance(store, settings, sweep)
    assert (await jobs.get_job(store, job)).state == State.QUEUED
    one = (await trials_of(store, sweep))[0]
    assert ("had saved no checkpoint" in (one.message or "")) is warns


@pytest.mark.parametrize(
    ("job", "trial"),
    [
        ({"state": "succeeded", "summary": {"last_loss": 1.5}}, ("succeeded", 1.5)),
        ({"state": "cancelled"}, ("cancelled", 2.0)),
        ({"state": "queued"}, ("active", 2.0)),
        ({"state": "pausing"}, ("paused", 2.0)),
    ],
)
@POSTGRESQL_IN_FULL
async def test_a_paused_trial_follows_its_job_that_ended_meanwhile_or_was_resumed_by_a_user(
    store: Store, settings: Settings, job: dict[str, Any], trial: tuple[str, float]
) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    async with store.write() as tx:
        await job_rows.set_columns(tx, (await trials_of(store, sweep))[0].job or "", job)
    await change(store, sweep, 0, {"standing": "paused", "rungs": [2.0], "value": 2.0})
    await advance(store, settings, sweep)
    one = (await trials_of(store, sweep))[0]
    assert (one.state, one.value) == trial


@POSTGRESQL_IN_FULL
async def test_a_stopped_trial_whose_job_a_user_cancelled_and_deleted_is_cancelled(
    store: Store, settings: Settings
) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    job = (await trials_of(store, sweep))[0].job or ""
    await job_submitting.cancel(store, job, "tester")
    await delete(store, job, "tester")
    await change(store, sweep, 0, {"standing": "active", "due": "resume"})
    for _ in range(2):
        await advance(store, settings, sweep)
    assert (await trials_of(store, sweep))[0].state == "cancelled"


@POSTGRESQL_IN_FULL
async def test_a_metric_that_is_not_finite_at_the_last_rung_is_no_value(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    one = (await trials_of(store, sweep))[0]
    await change(store, sweep, 0, {"rungs": [2.0], "value": 2.0})
    async with store.write() as tx:
        await job_rows.set_columns(tx, one.job or "", {"step": 9})  # without a loss
    await advance(store, settings, sweep)
    one = (await trials_of(store, sweep))[0]
    assert (one.rungs, one.value) == ([2.0, None], None)
    assert (await queries.get_sweep(store, sweep.id)).best is None


async def test_nothing_is_done_for_a_job_once_the_lease_has_expired(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, "t", 0.0)
        row = await rows.by_id(tx, sweep.id)
    assert row is not None
    with pytest.raises(SweepLeaseLost):
        await step(store, settings, row, "t")
    assert (await jobs.list_jobs(store)).items == []
    assert await advance(store, settings, sweep, "other")
    assert len((await jobs.list_jobs(store)).items) == 2


async def test_a_lease_is_prolonged_when_half_of_it_is_left(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    held = []
    for seconds in (600.0, 299.0):
        async with store.write() as tx:
            assert await rows.take(tx, sweep.id, "t", seconds)
            (row,) = await rows.to_advance(tx, "t", 10, lease_s=600.0)
            held.append(bool(row["held"]))
    assert held == [True, False]


async def test_acts_prolong_a_lease_that_is_half_over(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    for seconds, least in ((settings.lease_s / 3, settings.lease_s / 2), (600.0, 500.0)):
        async with store.write() as tx:
            assert await rows.take(tx, sweep.id, "t", seconds)
            row = await rows.by_id(tx, sweep.id)
        assert row is not None
        await change(store, sweep, 0, {"due": "submit"})
        await step(store, settings, row, "t")
        async with store.read() as tx:
            assert await rows.left(tx, sweep.id, "t") > least
            assert await rows.left(tx, sweep.id, "other") == 0.0


async def test_work_ends_though_the_renewal_of_its_lease_loses_the_cancellation(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewing = asyncio.Event()

    async def loses(_: SweepLeases, __: str) -> bool:
        renewing.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return True

    monkeypatch.setattr(SweepLeases, "_prolong", loses)
    async with asyncio.timeout(PATIENCE_S), SweepLeases(store, "t", 0.03).kept("a sweep"):
        await renewing.wait()


async def test_the_trials_of_a_cancelled_sweep_change_in_one_statement(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, {"parameters": {"train.seed": {"min": 1, "max": 50}}, "search": "grid"})
    await cancel(store, sweep.id)
    with counted() as statements:
        await advance(store, settings, sweep)
    assert sum(one.startswith("UPDATE trials") for one in statements) == 1
    assert (await queries.get_sweep(store, sweep.id)).counts == {"cancelled": 50}


async def test_a_step_does_a_bounded_number_of_acts_and_first_what_frees_devices(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    await change(store, sweep, 0, {"due": "submit"})
    await change(store, sweep, 1, {"standing": "paused", "due": "pause"})
    monkeypatch.setattr(advancing, "_ACTS", 1)
    for left in ([0], []):
        assert await advance(store, settings, sweep)
        async with store.read() as tx:
            assert [row["number"] for row in await rows.all_of(tx, sweep.id) if row["due"]] == left


OPTUNA = {"parameters": {"train.optimizer.lr": {"min": 1e-4, "max": 1e-1}}, "search": "optuna"}


@pytest.mark.parametrize(("part", "begun"), [(0.25, [4, 4]), (0.0, [1, 2, 3, 4, 4])])
async def test_trials_for_whose_parameters_a_step_has_no_time_begin_with_the_next_ones(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch, part: float, begun: list[int]
) -> None:
    monkeypatch.setattr(advancing, "_CHOOSING", part)
    settings = settings.model_copy(update={"lease_s": 600.0})
    sweep = await submit_sweep(store, settings, {**OPTUNA, "trials": 4, "parallel": 4})
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, "t", 600.0)
        row = await rows.by_id(tx, sweep.id)
    assert row is not None
    advancing_it, found = Advance(store, settings, "t"), []
    for _ in begun:
        async with store.read() as tx:
            busy = await rows.busy(tx, [sweep.id])
        await advancing_it.advance(row, busy)
        found.append(sum(one.job is not None for one in await trials_of(store, sweep)))
    assert found == begun


async def test_a_lease_lasts_as_long_as_optuna_chooses(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second dispatcher would take the sweep and choose, too, and each would throw away what the other has chosen."""
    settings, loop, taken = settings.model_copy(update={"lease_s": 2.0}), asyncio.get_running_loop(), []
    sweep = await submit_sweep(store, settings, {**OPTUNA, "trials": 1})

    async def other_takes() -> bool:
        async with store.write() as tx:
            return await rows.take(tx, sweep.id, "other", 600.0)

    def slow(*_: Any) -> dict[str, float]:
        time.sleep(1.25 * settings.lease_s)
        taken.append(asyncio.run_coroutine_threadsafe(other_takes(), loop).result())
        return {"train.optimizer.lr": 0.01}

    monkeypatch.setattr(Study, "ask", slow)
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, "t", settings.lease_s / 4)  # what the sweeps before it may leave
        row = await rows.by_id(tx, sweep.id)
    assert row is not None
    await step(store, settings, row, "t")
    assert (taken, (await queries.get_sweep(store, sweep.id)).counts) == ([False], {"active": 1})


async def test_a_change_whose_answer_is_lost_is_decided_on_once_more(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last trial that could begin is refused; that it is stored is not known to the dispatcher."""
    sweep = await submit_sweep(store, settings, {**SWEEP, "parallel": 1})
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, "t", 600.0)
        row = await rows.by_id(tx, sweep.id)
    assert row is not None
    stored = rows.change

    async def stored_and_lost(tx: Any, sweep_id: str, number: int, values: Mapping[str, Any]) -> None:
        await stored(tx, sweep_id, number, values)
        await tx.commit()
        raise DatabaseUnreachable("connection reset")

    async def refused(*_: Any, **__: Any) -> None:
        raise InvalidSpec("there is no such file", field="train.data")

    dispatcher = Advance(store, settings, "t")
    monkeypatch.setattr(rows, "change", stored_and_lost)
    monkeypatch.setattr(job_submitting, "requested", refused)
    async with store.read() as tx:
        busy = await rows.busy(tx, [sweep.id])
    with pytest.raises(DatabaseError):
        await dispatcher.advance(row, busy)
    monkeypatch.undo()
    async with store.read() as tx:
        busy = await rows.busy(tx, [sweep.id])
    assert await dispatcher.advance(row, busy)
    assert [one.state for one in await trials_of(store, sweep)] == ["refused", "active"]


async def test_without_the_lease_nothing_is_stored(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    async with store.write() as tx:
        assert await rows.take(tx, sweep.id, "other", 600.0)
        assert not await rows.take(tx, sweep.id, "t", 600.0)
        row = await rows.by_id(tx, sweep.id)
    assert row is not None
    with pytest.raises(SweepLeaseLost):
        await step(store, settings, row, "t")
    assert (await queries.get_sweep(store, sweep.id)).counts == {"waiting": 2}
    async with store.write() as tx:
        await rows.release(tx, "other")
        assert await rows.take(tx, sweep.id, "t", 600.0)


async def test_a_job_that_is_gone_is_a_cancelled_trial(store: Store, settings: Settings) -> None:
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    await change(store, sweep, 0, {"job_id": "job-of-old"})
    second = (await trials_of(store, sweep))[1].job or ""
    await job_submitting.cancel(store, second, "tester")
    await advance(store, settings, sweep)
    found = await queries.get_sweep(store, sweep.id)
    assert (found.state, found.counts, found.message) == ("failed", {"cancelled": 2}, "Its job was deleted.")
    with pytest.raises(SweepEnded):
        await cancel(store, sweep.id)
    with pytest.raises(SweepNotFound):
        await cancel(store, "sweep-of-none")


@POSTGRESQL_IN_FULL
async def test_a_trial_that_may_not_begin_says_why(store: Store, settings: Settings, submit: Submit) -> None:
    settings = settings.model_copy(update={"local_files": True})
    source = await submit()
    save_checkpoint(Path(settings.storage) / source.id, 2)
    sweep = await submit_sweep(store, settings, SWEEP, resume_from=source.id)
    await job_submitting.cancel(store, source.id, "tester")
    async with store.write() as tx:
        await removals.mark(tx, source.id, "tester")  # as an earlier version did while the sweep was open
    await advance(store, settings, sweep)
    await advance(store, settings, sweep)
    found = await queries.get_sweep(store, sweep.id)
    said = f"train.resume_from: {source.id} was deleted by tester."
    assert (found.state, found.counts, found.message) == ("failed", {"refused": 2}, said)


@POSTGRESQL_IN_FULL
async def test_the_job_with_whose_checkpoint_trials_begin_is_kept_between_them_until_the_sweep_has_ended(
    store: Store, settings: Settings, submit: Submit
) -> None:
    settings = settings.model_copy(update={"local_files": True})
    source, other = [await job_submitting.cancel(store, (await submit()).id, "tester") for _ in range(2)]
    path = save_checkpoint(Path(settings.storage) / source.id, 2)["path"]
    sweep = await submit_sweep(store, settings, {**SWEEP, "parallel": 1}, resume_from=source.id)
    await advance(store, settings, sweep)
    first = (await trials_of(store, sweep))[0].job or ""
    await job_submitting.cancel(store, first, "tester")
    async with store.write() as tx:
        await removals.mark_old(tx, 0.0, "retention", 100)
        await removals.mark(tx, source.id, "tester")
        await removals.begin(tx, 0.0, settings.cluster, 100)
        await job_rows.set_columns(tx, source.id, {"deleted_at": None})
        found = {one: await job_rows.by_id(tx, one) for one in (source.id, first, other.id)}
    assert [bool(row and row["removing"]) for row in found.values()] == [False, True, True]
    with pytest.raises(JobInUse, match=sweep.id):
        await delete(store, source.id, "tester")
    await advance(store, settings, sweep)
    assert (await jobs.get_job(store, (await trials_of(store, sweep))[1].job or "")).parent == source.id
    await cancel(store, sweep.id)
    while (await queries.get_sweep(store, sweep.id)).finished_at is None:
        await advance(store, settings, sweep)
    assert (await delete(store, source.id, "tester")).deleted_at is not None
    with pytest.raises(JobDeleted, match=source.id):
        await submit_sweep(store, settings, SWEEP, resume_from=path)


@POSTGRESQL_IN_FULL
async def test_a_sweep_whose_source_is_deleted_while_it_is_checked_is_refused(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, row_of = settings.model_copy(update={"local_files": True}), job_submitting.row_of
    source = await job_submitting.cancel(store, (await submit()).id, "tester")
    save_checkpoint(Path(settings.storage) / source.id, 2)

    async def deleted_meanwhile(*given: Any) -> Any:
        made = await row_of(*given)
        await delete(store, source.id, "tester")
        return made

    monkeypatch.setattr(job_submitting, "row_of", deleted_meanwhile)
    with pytest.raises(JobDeleted, match=source.id) as refused:
        await submit_sweep(store, settings, SWEEP, resume_from=source.id)
    assert refused.value.field == "train.resume_from"
    assert (await queries.list_sweeps(store)).items == []


@pytest.mark.parametrize("command", [None, ["true"]], ids=["training", "program"])
@pytest.mark.parametrize("by", ["id", "name"])
@POSTGRESQL_IN_FULL
async def test_all_trials_continue_the_checkpoint_that_was_the_newest_when_the_sweep_was_submitted(
    store: Store, settings: Settings, command: list[str] | None, by: str
) -> None:
    """Its job saves another one meanwhile, and a newer job has its name."""
    training = {"train": {"steps": 9, "global_batch": 4, "layout": {"data": 1}}}
    spec = {"name": "base", **(training if command is None else {"command": command})}

    async def job() -> str:
        made, _ = await job_submitting.submit(store, settings, kind_of(spec).model_validate(spec), None, "", "tester")
        return made.id

    async def saved(job_id: str, step: int) -> str:
        path = str(checkpoint_path(Path(settings.storage) / job_id, step))
        async with store.write() as tx:
            await job_rows.set_columns(tx, job_id, {"checkpoint": path})
        return path

    source = await job()
    path = await saved(source, 2)
    part = {"parameters": {"resources.env.A": ["1", "2"]}, "search": "grid", "metric": "loss", "parallel": 1}
    sweep = await submit_sweep(store, settings, part, command=command, resume_from=source if by == "id" else "base")
    await advance(store, settings, sweep)
    first = (await trials_of(store, sweep))[0].job or ""
    await saved(source, 3)
    await saved(await job(), 2)
    await job_submitting.cancel(store, first, "tester")
    await advance(store, settings, sweep)
    second = (await trials_of(store, sweep))[1].job or ""
    async with store.read() as tx:
        begun = await job_rows.by_ids(tx, [first, second])
    assert [(begun[one]["resume"], begun[one]["parent"]) for one in (first, second)] == [(path, source)] * 2


@POSTGRESQL_IN_FULL
async def test_trials_continue_a_checkpoint_before_the_first_rung(
    store: Store, settings: Settings, submit: Submit
) -> None:
    settings = settings.model_copy(update={"local_files": True})
    source = await submit()
    save_checkpoint(Path(settings.storage) / source.id, 3)
    with pytest.raises(InvalidSpec, match="of step 3") as refused:
        await submit_sweep(store, settings, SWEEP, resume_from=source.id)
    assert (refused.value.field, refused.value.remedy) == ("sweep.asha.min_steps", "Give more than 3.")
    sweep = await submit_sweep(store, settings, {**SWEEP, "asha": {"min_steps": 4}}, resume_from=source.id)
    assert sweep.rungs == [4, 12]


@POSTGRESQL_IN_FULL
async def test_a_sweep_whose_trials_begin_after_a_rung_says_so(store: Store, settings: Settings) -> None:
    """Where only the trainers see the checkpoint's step. A trial that has succeeded by then counts."""
    sweep = await submit_sweep(store, settings, SWEEP)
    await advance(store, settings, sweep)
    first, second = [one.job or "" for one in await trials_of(store, sweep)]
    async with store.write() as tx:
        for job in (first, second):
            row = {"attempt": 1, "ts": 0.0, "step": 10, "loss": 2.0, "skipped": False}
            await step_rows.append(tx, job, [row])
        await job_rows.set_columns(tx, second, {"step": 10, "state": "succeeded", "summary": {"last_loss": 1.5}})
        await job_rows.set_columns(tx, first, {"step": 10})
    for _ in range(2):
        await advance(store, settings, sweep)
    assert (await jobs.get_job(store, first)).state == State.CANCELLED
    refused, ended = await trials_of(store, sweep)
    assert (refused.state, ended.state, ended.value) == ("refused", "succeeded", 1.5)
    assert refused.message is not None and "continues a checkpoint after step 3" in refused.message
