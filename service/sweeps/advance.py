"""Advances one sweep: it reads how its trials are, decides (`policies/asha.py`), stores the decisions, and carries them out.

A decision is stored with what is `due` for the trial's job, before anything is done. The dispatcher that finds it due does it; each such
act is harmless if repeated. So a dispatcher may die at any line, and the next one continues.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...strategies.layout import Refusal
from ..database_errors import DatabaseError
from ..errors import JobDeleted, JobEnded, JobNotFound, JobPausing, ShardyardError
from ..jobs import pause as pausing
from ..jobs import submit as submitting
from ..policies.asha import Action, Limits, Trial, decide
from ..queries.sweeps import metric_of, rungs_of
from ..settings import Settings
from ..spec_files import SpecFiles
from ..states import FINAL, State
from ..store import jobs as job_rows
from ..store import sweeps as rows
from ..store.engine import Store
from ..sweep_spec import Sweep
from . import metric_values, optuna_search
from .lease import SweepLeases
from .metric_values import Metric, Passed
from .points import Point
from .request import spec_of, trial_document

log = logging.getLogger(__name__)

#: Decision → the trial's standing from then on, and what is due for its job.
_BECOMES: Final = {
    Action.BEGIN: ("active", "submit"),
    Action.CONTINUE: ("active", "resume"),
    Action.STOP: ("paused", "pause"),
    Action.GIVE_UP: ("over", "cancel"),
}
#: What is due in the order in which it is done: first what frees devices.
_FIRST: Final = ("cancel", "pause", "resume", "submit")
#: Most acts of one step: the dispatcher's other sweeps wait meanwhile, and the lease runs.
_ACTS: Final = 100
#: The part of a lease after which a step asks Optuna for no more parameters: the dispatcher's other sweeps wait meanwhile.
_CHOOSING: Final = 0.25
#: The message of a trial that continues after a rung, and whose program has saved nothing that Shardyard knows of.
_REPEATS: Final = (
    "It continued after a rung, and the program had saved no checkpoint with shardyard.checkpoint: unless it keeps files of its own, it "
    "repeated its steps. Save a checkpoint on SIGTERM, or set asha.losers to cancel."
)


class _SweepCancelled(Exception):
    """A user has cancelled the sweep since the step began."""


@dataclass(frozen=True)
class _Sweep:
    """A sweep's row, read."""

    row: RowMapping
    sweep: Sweep
    metric: Metric
    rungs: Sequence[int]

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def limits(self) -> Limits:
        asha = self.sweep.asha
        return (
            Limits(self.sweep.parallel)
            if asha is None
            else Limits(self.sweep.parallel, asha.reduction, asha.losers == "cancel")
        )


class Advance:
    """Advances sweeps under one lease token. It keeps which sweeps wait for their trials, so that these are read only when one has news.

    And the threads that check the specs of their trials: a check that takes too long goes on, and keeps its turn until it ends.
    """

    def __init__(self, store: Store, settings: Settings, token: str) -> None:
        self._store, self._settings, self._token = store, settings, token
        self._leases = SweepLeases(store, token, settings.lease_s)
        self._waiting: set[str] = set()
        self._put_off: dict[str, int] = {}  # sweep → the trial whose submission was put off last
        self._all_files = SpecFiles()
        self._files: dict[str, SpecFiles] = {}  # of each sweep, as its storage may be the only one that does not answer

    async def advance(self, row: RowMapping, busy: Sequence[RowMapping]) -> bool:
        """Take one step. `busy`: the sweep's rows of `rows.busy`, read under the lease.

        Returns whether jobs were submitted, paused, resumed or cancelled. Raises SweepLeaseLost, DatabaseError.
        """
        try:
            return await self._advance(row, busy)
        except _SweepCancelled:
            return True  # the next step gives up what was due
        except BaseException:  # what was stored is not known, perhaps all of it: decide once more
            self._waiting.discard(row["id"])
            raise

    async def _advance(self, row: RowMapping, busy: Sequence[RowMapping]) -> bool:
        found = _Sweep(row, Sweep.model_validate(row["sweep"]), Metric.of(metric_of(row), row["spec"]), rungs_of(row))
        cancelling = row["state"] == "cancelling"
        news = await self._news(found, [one for one in busy if one["due"] is None])
        due: Sequence[RowMapping] = [one for one in busy if one["due"] is not None]
        if news or cancelling or not (due or found.id in self._waiting):
            due = await self._decide(found, news, cancelling)
        for one in self._ordered(found.id, due)[:_ACTS]:
            if not await self._carry_out(found, one):
                break
        return bool(due)

    def _ordered(self, sweep_id: str, due: Sequence[RowMapping]) -> list[RowMapping]:
        """In the order in which it is done. A trial whose submission was put off is submitted after the others."""
        last = self._put_off.get(sweep_id, -1)

        def place(one: RowMapping) -> tuple[int, bool]:
            return _FIRST.index(one["due"]), one["due"] == "submit" and one["number"] <= last

        return sorted(due, key=place)

    def look_again(self, sweep_id: str) -> None:
        """Read all trials of the sweep with the next step, and decide: they may have changed since the last one."""
        self._waiting.discard(sweep_id)

    def forget(self, sweep_ids: Sequence[str]) -> None:
        """Keep only what is known of these sweeps."""
        known = set(sweep_ids)
        self._waiting &= known
        self._put_off = {one: number for one, number in self._put_off.items() if one in known}
        self._files = {one: files for one, files in self._files.items() if one in known}

    async def _news(self, found: _Sweep, trials: Sequence[RowMapping]) -> dict[int, dict[str, Any]]:
        """Trial → its columns that change: it came to a rung, its job ended, or a user resumed it."""
        left = {one["number"]: found.rungs[len(one["rungs"]) :] for one in trials if one["standing"] == "active"}
        there = [one for one in trials if metric_values.reached(one, found.metric, left.get(one["number"], ()))]
        measured: dict[int, list[float | None] | Passed] = {}
        if there:
            async with self._store.read() as tx:
                for one in there:
                    rungs = left[one["number"]]
                    measured[one["number"]] = await metric_values.at_rungs(tx, one, found.metric, rungs)
        news = {one["number"]: _news_of(found, one, measured.get(one["number"], [])) for one in trials}
        return {number: values for number, values in news.items() if values}

    async def _decide(
        self, found: _Sweep, news: Mapping[int, Mapping[str, Any]], cancelling: bool
    ) -> Sequence[RowMapping]:
        """Store the news and what follows from them. Returns the trials that have something due."""
        async with self._store.read() as tx:
            before = await rows.all_of(tx, found.id)
        after = [{**one, **news.get(one["number"], {})} for one in before]
        reached = {
            one["number"] for one in after if one["standing"] == "active" and "rungs" in news.get(one["number"], {})
        }
        changes = {number: dict(values) for number, values in news.items()}
        following = _give_up(after) if cancelling else self._decisions(found, after, reached)
        begin = _to_choose(after, following)
        points = await self._chosen(found, after, begin)
        for number in following.keys() - begin[len(points) :]:
            chosen = {"parameters": points[number]} if number in points else {}
            changes[number] = changes.get(number, {}) | following[number] | chosen
        async with self._store.write() as tx:
            await self._leases.locked(tx, found.id)
            await rows.change_all(tx, found.id, changes)
            final = [{**one, **changes.get(one["number"], {})} for one in after]
            if all(one["standing"] in ("done", "over") and one["due"] is None for one in final):
                await self._settle(tx, found, final, cancelling)
            due = [one for one in await rows.busy(tx, [found.id]) if one["due"] is not None]
        if len(points) < len(begin):
            self._waiting.discard(found.id)  # the next step chooses for the others
        else:
            self._waiting.add(found.id)
        return due

    def _decisions(
        self, found: _Sweep, after: Sequence[Mapping[str, Any]], reached: set[int]
    ) -> dict[int, dict[str, Any]]:
        sign = 1.0 if found.sweep.goal == "minimize" else -1.0
        trials = [
            Trial(
                one["number"],
                one["standing"],
                tuple(None if value is None else sign * value for value in one["rungs"]),
            )
            for one in after
        ]
        changes: dict[int, dict[str, Any]] = {}
        for decision in decide(trials, found.limits, reached):
            standing, due = _BECOMES[decision.action]
            if decision.action == Action.STOP and found.limits.final:
                standing, due = "over", "cancel"
            changes[decision.number] = {"standing": standing, "due": due}
            if standing == "over":
                changes[decision.number]["outcome"] = "stopped"
        return changes

    async def _chosen(
        self, found: _Sweep, after: Sequence[Mapping[str, Any]], begin: Sequence[int]
    ) -> dict[int, Point]:
        """The parameters of the trials that begin, by Optuna: of all, or of the first ones if it takes long."""
        points: dict[int, Point] = {}
        if not begin:
            return points
        await self._keep_lease(found)
        until = time.monotonic() + _CHOOSING * self._settings.lease_s
        async with self._leases.kept(found.id):
            seen = [optuna_search.Seen.of(one) for one in after if one["parameters"] is not None]
            study = await asyncio.to_thread(optuna_search.Study, found.sweep, seen)
            for number in begin:
                if points and time.monotonic() >= until:
                    break
                points[number] = await asyncio.to_thread(study.ask, number)
        return points

    async def _settle(
        self, tx: AsyncConnection, found: _Sweep, final: Sequence[Mapping[str, Any]], cancelling: bool
    ) -> None:
        done = sum(one["standing"] == "done" for one in final)
        state, message = "cancelled" if cancelling else "succeeded" if done else "failed", None
        if state == "failed":
            message = next((one["message"] for one in final if one["message"]), "No trial ran to its end.")
        await rows.settle(tx, found.id, self._token, state, message, time.time())
        self._waiting.discard(found.id)
        log.info("%s has %s: %d of %d trials ran to their end", found.id, state, done, len(final))

    async def _keep_lease(self, found: _Sweep) -> None:
        """Prolong the lease when half of it is gone. Raises SweepLeaseLost if it is over, and _SweepCancelled."""
        if await self._leases.keep(found.id) == "cancelling" != found.row["state"]:
            raise _SweepCancelled

    async def _carry_out(self, found: _Sweep, one: RowMapping) -> bool:
        """Do what is due for a trial's job, and store that it is done. What cannot be done yet stays due.

        False: a submission was put off, so those after it are, too. Each may take as long, and other sweeps wait meanwhile.
        """
        done: dict[str, Any] = {"due": None}
        # Not on behalf of a lease that is over: the job may have been resumed by the next dispatcher since.
        await self._keep_lease(found)
        if one["due"] == "submit" and found.row["state"] == "cancelling":
            await self._leave_out(found, one)
            return True
        try:
            match one["due"]:
                case "submit":
                    done["job_id"] = await self._submit(found, one)
                case "pause":
                    await pausing.pause(self._store, one["job_id"], found.row["actor"])
                case "resume":
                    job = await pausing.resume(self._store, one["job_id"], found.row["actor"])
                    if "command" in job.spec and job.checkpoint is None:
                        done["message"] = _REPEATS
                case "cancel" if one["job_id"] is not None:
                    await submitting.cancel(self._store, one["job_id"], found.row["actor"])
        except (JobPausing, DatabaseError) as error:
            log.debug("%s, trial %d: %s", found.id, one["number"], error)
            return True
        except (ShardyardError, Refusal, ValidationError) as error:
            if getattr(error, "retry_after_s", None) is not None:
                return not self._puts_off(found, one, error)
            if one["due"] == "submit" or not isinstance(error, JobEnded | JobNotFound | JobDeleted):
                done |= {"standing": "over", "outcome": "refused", "message": _said(error)}
            elif one["due"] == "pause" or (one["due"] == "cancel" and isinstance(error, JobEnded)):
                done |= {"standing": "active", "outcome": None}  # the job was faster, or a user; its end is news later
        async with self._store.write() as tx:
            await self._leases.locked(tx, found.id)
            await rows.change(tx, found.id, one["number"], done)
        if one["due"] == "cancel" or done.get("outcome") == "refused":
            self._waiting.discard(found.id)
        return True

    def _puts_off(self, found: _Sweep, one: RowMapping, error: Exception) -> bool:
        """Whether what is tried again later is a submission."""
        log.debug("%s, trial %d: %s", found.id, one["number"], error)
        if one["due"] == "submit":
            self._put_off[found.id] = one["number"]
        return bool(one["due"] == "submit")

    async def _submit(self, found: _Sweep, one: RowMapping) -> str:
        document = trial_document(found.row["spec"], found.id, one["number"], one["parameters"])
        spec, digest = await asyncio.to_thread(spec_of, document)
        files = self._files.setdefault(found.id, self._all_files.apart())

        async def guard(tx: AsyncConnection) -> None:
            if (await self._leases.locked(tx, found.id))["state"] == "cancelling":
                raise _SweepCancelled

        request = submitting.Request(_key(found, one), digest, found.row["actor"], guard=guard)
        async with self._leases.kept(found.id):
            job, _ = await submitting.requested(self._store, self._settings, spec, request, files)
        return job.id

    async def _leave_out(self, found: _Sweep, one: RowMapping) -> None:
        """A trial of a cancelled sweep is due to be submitted: note its job if it has one already, else it is over.

        No job of it comes later. A predecessor whose lease is over may still be submitting it, but stores a job only under the sweep's
        lock and with its own token: either that is done before we look, or it finds that the token is ours.
        """
        async with self._store.write() as tx:
            await self._leases.locked(tx, found.id)
            job = await job_rows.by_key(tx, _key(found, one))
            left = {"standing": "over", "outcome": "cancelled"} if job is None else {"job_id": job["id"]}
            await rows.change(tx, found.id, one["number"], {"due": None, **left})


def _key(found: _Sweep, one: RowMapping) -> str:
    """The idempotency key of a trial's job."""
    return f"{found.id}-{one['number']}"


def _news_of(found: _Sweep, one: RowMapping, measured: Sequence[float | None] | Passed) -> dict[str, Any]:
    """The columns of an active or paused trial that change. `measured`: the metric at rungs that it came to."""
    if one["job_state"] is None:
        return {"standing": "over", "outcome": "cancelled", "message": "Its job was deleted."}
    if one["standing"] == "paused":
        return _ending(found, one) if one["job_state"] in FINAL else {"standing": "active"}
    news: dict[str, Any] = {}
    if isinstance(measured, Passed):
        if one["job_state"] not in FINAL:
            return {"standing": "over", "outcome": "refused", "message": str(measured), "due": "cancel"}
    elif measured:
        news = {"rungs": [*one["rungs"], *measured], "value": measured[-1]}
    if one["job_state"] in FINAL:
        news |= _ending(found, one)
    return news


def _ending(found: _Sweep, one: RowMapping) -> dict[str, Any]:
    """The columns of a trial whose job has ended."""
    if one["job_state"] != State.SUCCEEDED:
        return {"standing": "over", "outcome": one["job_state"], "message": one["job_message"]}
    value = metric_values.at_end(one, found.metric)
    if value is None:
        message = f"The job succeeded, and reported no finite {found.metric.name}."
        return {"standing": "over", "outcome": "failed", "message": message}
    return {"standing": "done", "outcome": "succeeded", "value": value}


def _give_up(after: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The changes of the trials that have not ended, when the sweep is cancelled.

    A trial that is due to be submitted may have a job already, which is not noted: `_leave_out` looks for it, and what it finds is
    given up with the next step.
    """
    left = [one for one in after if one["standing"] not in ("done", "over") and one["due"] != "submit"]
    return {
        one["number"]: {"standing": "over", "outcome": "cancelled", "due": "cancel" if one["job_id"] else None}
        for one in left
    }


def _to_choose(after: Sequence[Mapping[str, Any]], following: Mapping[int, Mapping[str, Any]]) -> list[int]:
    """The trials that begin without parameters, by number."""
    begin = {number for number, values in following.items() if values.get("due") == "submit"}
    return [one["number"] for one in after if one["number"] in begin and one["parameters"] is None]


def _said(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    field = getattr(error, "field", None)
    message = getattr(error, "message", str(error))
    return f"{field}: {message}" if field else message
