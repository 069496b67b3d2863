"""A job's life against a few lines of Python: whatever users, dispatchers and gangs do, in whatever order, the database says the same.

Dispatchers lose their leases, die and come back, and bring what a gang reported late, twice, cut short or not at all. After each act the
database must hold exactly what the model holds: one lease at most, each step once and in order, an audit trail without gaps that ends
in the job's state, and never more devices given away than there are.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import hypothesis
import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.events import whole_event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.attempt_runner import Attempt
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.dispatch.retention import sweep
from shardyard.service.errors import JobDeleted, JobEnded, JobNotEnded, JobPausing, JobSucceeded, LeaseLost
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.delete import delete, undelete
from shardyard.service.jobs.pause import pause, resume
from shardyard.service.jobs.reshard import reshard
from shardyard.service.jobs.retry import retry
from shardyard.service.schemas.node import ClusterNode
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.spec_files import SpecFiles
from shardyard.service.states import FINAL, HOLDING, MOVES, State
from shardyard.service.store import attempts, events, leases, nodes, steps
from shardyard.service.store import jobs as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import METADATA

from ...inprocess_cluster import InProcessCluster
from ..gang_events import NODE

T = TypeVar("T")

#: What a rule is about, out of what there is then. Neither what is drawn nor which rules may run depends on how a race ended: Hypothesis
#: could not draw it again.
PICKS = st.integers(0, 999)
#: Two cores with four ranks each.
CAPACITY = 8
RESTARTS, RETRIES = 2, 1
Event = dict[str, Any]


@dataclass
class Reported:
    """What a gang has reported, numbered from 1, and how much of it is stored."""

    events: list[Event] = field(default_factory=list)
    stored: int = 0
    step: int = 0  # the last that it reported

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1]["data"].get("state") in FINAL

    def emit(self, word: str) -> None:
        """`s`, `r` and `R`: it starts, runs, recovers; else a step, or how it ends."""
        kind, data = "state", dict[str, Any]()
        if word in ("step", "again"):
            self.step = self.step + 1 if word == "step" else max(1, self.step)
            kind, data = "step", {"step": self.step, "loss": float(len(self.events)), "step_s": 0.1}
        elif word in (State.SUCCEEDED, State.CANCELLED):
            data = {"state": word, "reason": None, "message": None}
        elif state := {"s": State.STARTING, "r": State.RUNNING, "R": State.RECOVERING}.get(word):
            data = {"state": state, "reason": None, "message": None}
        else:
            data = {"state": State.FAILED, "reason": word, "message": None}
        self.events.append({"seq": len(self.events) + 1, "ts": 1000.0, "kind": kind, "data": whole_event(kind, data)})


@dataclass
class Known:
    """A job as it has to be. `lease`: who may write, also after it has `expired`, until another takes the job."""

    id: str
    ranks: int
    spares: int
    state: State = State.QUEUED
    passed: list[State] = field(default_factory=lambda: [State.QUEUED])
    attempt: int = 0
    lease: Lease | None = None
    expired: bool = False
    restarts: int = 0
    retries: int = 0
    steps: dict[int, tuple[int, float]] = field(
        default_factory=dict
    )  # step → attempt and loss, in the order of storing
    gangs: dict[int, Reported] = field(default_factory=dict)
    deleted: bool = False
    retries_of: str | None = None
    retried_by: str | None = None
    devices: int = 0  # of the gang that was placed last: its job may have another layout by now

    @property
    def free(self) -> bool:
        return self.lease is None or self.expired

    def to(self, *states: State) -> None:
        for state in states:
            assert state in MOVES[self.state], (self.state, state)
            self.state = state
            self.passed.append(state)

    def held_by(self, lease: Lease | None) -> None:
        self.lease, self.expired = lease, False

    def start(self, lease: Lease) -> None:
        self.held_by(lease)
        self.attempt += 1
        self.devices = self.ranks + self.spares
        self.gangs[self.attempt] = Reported()
        self.to(State.PLACING)

    def cancel(self) -> type[Exception] | None:
        if self.deleted:
            return JobDeleted
        if self.state in (State.SUCCEEDED, State.FAILED):
            return JobEnded
        if self.state not in (State.CANCELLING, State.CANCELLED):
            self.to(State.CANCELLED if self.state in (State.QUEUED, State.PAUSED) else State.CANCELLING)
        return None

    def pause(self) -> type[Exception] | None:
        if self.deleted:
            return JobDeleted
        if self.state in FINAL | {State.CANCELLING}:
            return JobEnded
        if self.state not in (State.PAUSING, State.PAUSED):
            self.to(State.PAUSED if self.state == State.QUEUED else State.PAUSING)
        return None

    def resume(self) -> type[Exception] | None:
        if self.deleted:
            return JobDeleted
        if self.state in FINAL | {State.CANCELLING}:
            return JobEnded
        if self.state == State.PAUSING:
            return JobPausing
        if self.state == State.PAUSED:
            self.to(State.QUEUED)
        return None

    def delete(self) -> type[Exception] | None:
        if self.state not in FINAL:
            return JobNotEnded
        self.deleted = True
        return None

    def retry(self) -> type[Exception] | None:
        if self.deleted:
            return JobDeleted
        if self.state == State.SUCCEEDED:
            return JobSucceeded
        return None if self.state in FINAL else JobNotEnded

    def reshard(self, ranks: int) -> type[Exception] | None:
        if self.deleted:
            return JobDeleted
        if ranks == self.ranks:
            return None
        if self.state == State.PAUSING:
            return JobPausing
        if self.state not in (State.QUEUED, State.PAUSED, State.RESHARDING):
            if State.RESHARDING not in MOVES[self.state]:
                return JobEnded
            self.to(State.RESHARDING)
        self.ranks = ranks
        return None

    def ingest(self, lease: Lease, attempt: int, batch: list[Event]) -> type[Exception] | None:
        if lease != self.lease or attempt != self.attempt:
            return LeaseLost
        gang = self.gangs[attempt]
        for event in sorted(batch, key=lambda event: int(event["seq"])):
            if event["seq"] > gang.stored:
                gang.stored = event["seq"]
                self._take(event)
        return None

    def _take(self, event: Event) -> None:
        data = event["data"]
        if event["kind"] == "step":
            if self.steps.get(data["step"], (0, 0.0))[0] < self.attempt:
                self.steps.pop(data["step"], None)
                self.steps[data["step"]] = (self.attempt, data["loss"])
        elif data["state"] == State.FAILED and data["reason"] in ("rank_lost", "devices_lost", "exception"):
            self.lose(data["reason"])
        elif data["state"] == State.CANCELLED and self.state != State.CANCELLING:
            self.lose("gang_lost")
        else:
            self.to(*_way(self.state, data["state"]))
            assert data["state"] not in FINAL or self.state in FINAL, "a gang's end is never lost"

    def lose(self, reason: str) -> None:
        """The attempt has ended; whether the job goes on, its budgets say."""
        if self.state == State.CANCELLING:
            return self.to(State.CANCELLED)
        ending = self.state in (State.RESHARDING, State.PAUSING)
        asked = reason == "devices_lost" or (ending and reason != "exception")
        if reason == "exception":
            enough, self.retries = self.retries >= RETRIES, min(RETRIES, self.retries + 1)
        elif not asked:
            enough, self.restarts = self.restarts >= RESTARTS, min(RESTARTS, self.restarts + 1)
        else:
            enough = False
        if enough:
            return self.to(State.FAILED)
        if self.state == State.PAUSING:
            return self.to(State.PAUSED)
        return self.to(*([] if State.QUEUED in MOVES[self.state] else [State.RECOVERING]), State.QUEUED)


def _way(before: State, to: State) -> list[State]:
    """A gang that says so has passed what lies between; what it says too late moves nothing."""
    ahead = {State.PLACING: [State.STARTING, State.RUNNING], State.STARTING: [State.RUNNING]}.get(before, [])
    ways = [ahead[:count] for count in range(len(ahead) + 1)]
    return next(([*way, to] for way in ways if to in MOVES[way[-1] if way else before]), [])


class Life(RuleBasedStateMachine):
    """Users, two dispatchers and gangs. A lease that was ever given stays in the hands of the dispatcher that got it."""

    def __init__(self, run: "Run", stores: list[Store], settings: Settings) -> None:
        super().__init__()
        self.run, self.stores, self.settings = run, dict(zip("ab", stores, strict=True)), settings
        self.jobs: dict[str, Known] = {}
        self.given: list[tuple[Lease, int]] = []  # with the attempt that it is for
        self.touched: list[str] = []
        self.submissions = self.admissions = 0
        run(self._empty())

    async def _empty(self) -> None:
        async with self.stores["a"].write() as tx:
            for table in reversed(METADATA.sorted_tables):
                await tx.execute(table.delete())
            await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])

    def _job(self, pick: int, among: Callable[[Known], bool] = lambda job: True) -> Known | None:
        found = [job for job in self.jobs.values() if among(job)]
        if not found:
            return None
        self.touched.append(found[pick % len(found)].id)
        return found[pick % len(found)]

    def _lease(self, pick: int) -> tuple[Known, Lease, int] | None:
        """Mostly one that still holds, if there is one, else any that was ever given."""
        if not self.given:
            return None
        living = [(lease, attempt) for lease, attempt in self.given if self.jobs[lease.job_id].lease == lease]
        among = living if living and pick % 5 else self.given
        lease, attempt = among[pick % len(among)]
        self.touched.append(lease.job_id)
        return self.jobs[lease.job_id], lease, attempt

    def _spec(self, ranks: int, spares: int) -> JobSpec:
        train = {"steps": 100, "global_batch": 4 * ranks, "layout": {"data": ranks}}
        policy = {"spares": spares, "max_restarts": RESTARTS, "max_retries": RETRIES}
        return JobSpec.model_validate({"name": "life", "train": train, "policy": policy})

    # What users do.

    @precondition(lambda self: self.submissions < 5)
    @rule(ranks=st.integers(1, 5), spares=st.integers(0, 1))
    def submit(self, ranks: int, spares: int) -> None:
        self.submissions += 1
        asked = submitting.submit(self.stores["a"], self.settings, self._spec(ranks, spares), None, "", "user")
        job, created = self.run(asked)
        assert created
        self.jobs[job.id] = Known(job.id, ranks, spares)
        self.touched.append(job.id)

    # What dispatchers do.

    @precondition(lambda self: self.submissions)
    @rule(who=st.sampled_from(["a", "b", "ab"]))
    def admission(self, who: str) -> None:
        """Both at once give away what one would."""
        self.admissions += 1
        looks = [admit(self.stores[one], self.settings, one, None) for one in who]
        found = {lease.job_id: lease for each in self.run(together(*looks)) for lease in each.leases}
        held, started = sum(job.devices for job in self.jobs.values() if job.state in HOLDING), list[str]()
        for _, job in sorted(self.jobs.items()):
            if job.state == State.QUEUED:
                held += job.ranks + job.spares
                if held > CAPACITY:
                    break  # it waits, and those behind it with it
                if job.free:  # else its last gang is still being removed, and it keeps its place
                    started.append(job.id)
        assert sorted(found) == started
        for job_id in started:
            self.jobs[job_id].start(found[job_id])
            self.given.append((found[job_id], self.jobs[job_id].attempt))
        self.touched += self.jobs

    @precondition(lambda self: self.admissions)
    @rule(who=st.sampled_from(["a", "b", "ab"]))
    def adoption(self, who: str) -> None:
        """Of those who find the same abandoned jobs, one gets each."""
        abandoned = sorted(job.id for job in self.jobs.values() if job.free and job.state in HOLDING)
        taken = self.run(together(*(adopted(self.stores[one], one) for one in who)))
        assert sorted(lease.job_id for each in taken for lease in each) == abandoned
        for lease in sorted((lease for each in taken for lease in each), key=lambda lease: lease.job_id):
            self.jobs[lease.job_id].held_by(lease)
            self.given.append((lease, self.jobs[lease.job_id].attempt))
        self.touched += abandoned

    @precondition(lambda self: self.admissions)
    @rule(pick=PICKS, back=st.integers(0, 3), less=st.integers(-3, 3), turned=st.booleans(), too=st.booleans())
    def events_are_taken_in(self, pick: int, back: int, less: int, turned: bool, too: bool) -> None:
        """From what is stored on or from before it, to the newest or only in part; and perhaps a user cancels at this moment."""
        if (found := self._lease(pick)) is None:
            return
        job, lease, attempt = found
        reported = job.gangs[attempt]
        batch = reported.events[max(0, reported.stored - back) : max(0, len(reported.events) - max(0, less))]
        batch = batch[::-1] if turned else batch
        taking = refusal(ingest(self.stores["b"], lease, attempt, batch, self.settings.rules))
        if not too:
            assert self.run(taking) is job.ingest(lease, attempt, batch)
            return
        answers = self.run(together(taking, refusal(submitting.cancel(self.stores["a"], job.id, "user"))))
        first, second = deepcopy(job), deepcopy(job)
        ways = [
            ([first.ingest(lease, attempt, batch), first.cancel()], first),
            ([second.cancel(), second.ingest(lease, attempt, batch)][::-1], second),
        ]
        ((seen,), _) = self.run(stored(self.stores["a"], [job]))
        likely = [known for expected, known in ways if expected == answers and said(known) == seen]
        assert likely, (answers, seen, [(expected, said(known)) for expected, known in ways])
        self.jobs[job.id] = likely[0]

    # What gangs do.

    @precondition(lambda self: self.admissions)
    @rule(pick=PICKS, words=st.lists(st.sampled_from(["step", "again", *"srR"]), max_size=4), heard=st.booleans())
    def a_gang_trains(self, pick: int, words: list[str], heard: bool) -> None:
        """Also one whose job has long gone on. `again`: a step that is trained once more after a repair."""
        job = self._job(pick, lambda job: bool(job.attempt))
        if job is not None:
            self._emit(job, job.attempt if pick % 4 else 1, words, heard)

    @precondition(lambda self: self.admissions)
    @rule(
        pick=PICKS,
        last=st.sampled_from(["step", "r", "R"]),
        end=st.sampled_from(["succeeded", "cancelled", "rank_lost", "devices_lost", "exception", "bad"]),
        heard=st.booleans(),
    )
    def a_gang_ends(self, pick: int, last: str, end: str, heard: bool) -> None:
        job = self._job(pick, lambda job: bool(job.attempt) and job.state in HOLDING)
        if job is not None:
            self._emit(job, job.attempt, [last, end], heard)

    def _emit(self, job: Known, attempt: int, words: list[str], heard: bool) -> None:
        """`heard`: who looks after the job, takes it in at once."""
        gang = job.gangs[attempt]
        for word in words:
            if not gang.ended:
                gang.emit(word)
        if heard and job.lease is not None:
            batch = gang.events[gang.stored :]
            taking = ingest(self.stores["a"], job.lease, attempt, batch, self.settings.rules)
            assert self.run(refusal(taking)) is job.ingest(job.lease, attempt, batch)

    # What else happens, less often.

    @precondition(lambda self: self.admissions)
    @rule(
        what=st.sampled_from(
            [
                *("cancel", "pause", "resume", "reshard", "expire", "renew", "give back", "restart", "lose"),
                *("delete", "undelete", "retry", "remove"),
            ]
        ),
        pick=PICKS,
    )
    def mishap(self, what: str, pick: int) -> None:
        acts: dict[str, Callable[[int], None]] = {
            "cancel": self._cancel,
            "pause": self._pause,
            "resume": self._resume,
            "reshard": self._reshard,
            "expire": self._expire,
            "renew": self._renew,
            "give back": self._give_back,
            "restart": self._restart,
            "lose": self._lose,
            "delete": self._delete,
            "undelete": self._undelete,
            "retry": self._retry,
            "remove": self._remove,
        }
        acts[what](pick)

    def _cancel(self, pick: int) -> None:
        job = self._job(pick)
        assert job is not None
        assert self.run(refusal(submitting.cancel(self.stores["a"], job.id, "user"))) is job.cancel()

    def _pause(self, pick: int) -> None:
        job = self._job(pick)
        assert job is not None
        assert self.run(refusal(pause(self.stores["a"], job.id, "user"))) is job.pause()

    def _resume(self, pick: int) -> None:
        """Mostly one that is paused, if there is one."""
        job = self._job(pick, lambda job: job.state == State.PAUSED) if pick % 4 else None
        job = job or self._job(pick)
        assert job is not None
        assert self.run(refusal(resume(self.stores["a"], job.id, "user"))) is job.resume()

    def _delete(self, pick: int) -> None:
        job = self._job(pick, lambda job: job.state in FINAL) if pick % 4 else None
        job = job or self._job(pick)
        if job is not None:
            assert self.run(refusal(delete(self.stores["a"], job.id, "user"))) is job.delete()

    def _undelete(self, pick: int) -> None:
        job = self._job(pick, lambda job: job.deleted) if pick % 4 else None
        job = job or self._job(pick)
        if job is not None:
            assert self.run(refusal(undelete(self.stores["a"], job.id))) is None
            job.deleted = False

    def _retry(self, pick: int) -> None:
        job = self._job(pick, lambda job: job.state in FINAL and not job.deleted) if pick % 4 else None
        job = job or self._job(pick)
        if job is None or len(self.jobs) > 6:
            return
        expected, request = job.retry(), submitting.Request(None, "", "user")
        asked = retry(self.stores["a"], self.settings, job.id, request, SpecFiles())
        if expected is not None:
            assert self.run(refusal(asked)) is expected
            return
        new, _ = self.run(asked)
        self.jobs[new.id] = Known(new.id, job.ranks, job.spares, retries_of=job.id)
        self.touched.append(new.id)
        job.retried_by = new.id

    def _remove(self, pick: int) -> None:
        """The time for undoing is over: a sweep removes the deleted jobs of which no attempt is being closed."""
        gone = {job.id for job in self.jobs.values() if job.deleted and job.free}
        settings = self.settings.model_copy(update={"undelete_s": 0.0})
        self.run(sweep(self.stores["ab"[pick % 2]], settings))
        assert not self.run(found(self.stores["a"], gone))
        self.jobs = {job.id: job for job in self.jobs.values() if job.id not in gone}
        self.given = [(lease, attempt) for lease, attempt in self.given if lease.job_id not in gone]
        self.touched = [job_id for job_id in self.touched if job_id not in gone] + list(self.jobs)

    def _reshard(self, pick: int) -> None:
        job, ranks = self._job(pick), 1 + pick % 5
        assert job is not None
        asked = reshard(self.stores["a"], self.settings, job.id, self._spec(ranks, job.spares), "user")
        assert self.run(refusal(asked)) is job.reshard(ranks)

    def _expire(self, pick: int) -> None:
        if (found := self._lease(pick)) is None:
            return
        job, lease, _ = found
        expired = self.run(renew(self.stores["a"], [lease], -1.0))
        assert expired == ({lease.token} if job.lease == lease else set())
        job.expired = job.expired or job.lease == lease

    def _renew(self, pick: int) -> None:
        """All that a dispatcher was ever given."""
        who = "ab"[pick % 2]
        mine = [lease for lease, _ in self.given if lease.owner == who]
        holding = [lease for lease in mine if self.jobs[lease.job_id].lease == lease]
        assert self.run(renew(self.stores[who], mine, 1000.0)) == {lease.token for lease in holding}
        for lease in holding:
            self.jobs[lease.job_id].expired = False
            self.touched.append(lease.job_id)

    def _give_back(self, pick: int) -> None:
        """As after an attempt's end, or by one who thinks that it is still his."""
        if (found := self._lease(pick)) is None:
            return
        job, lease, _ = found
        self.run(released(self.stores["a"], [lease.token]))
        if job.lease == lease:
            job.held_by(None)

    def _restart(self, pick: int) -> None:
        """A dispatcher gave back what it had, or it died, and is known to have died."""
        who = "ab"[pick % 2]
        mine = [job for job in self.jobs.values() if job.lease is not None and job.lease.owner == who]
        tokens = [job.lease.token for job in mine if job.lease is not None]
        self.run(released(self.stores[who], tokens) if pick % 4 < 2 else buried(self.stores[who], who))
        for job in mine:
            job.held_by(None)
            self.touched.append(job.id)

    def _lose(self, pick: int) -> None:
        """The dispatcher asks the cluster for a gang, and there is none."""
        if (found := self._lease(pick)) is None:
            return
        job, lease, _ = found
        unplaced = job.state == State.PLACING and not job.gangs[job.attempt].stored
        if job.lease == lease and (job.state not in HOLDING or unplaced):
            return  # it has nothing more to ask for, or would start it
        cluster = InProcessCluster()
        cluster.machines = [ClusterNode(id=NODE["id"], host=NODE["host"], alive=True, cpu=2, gpu=0)]
        asking = Attempt(self.stores[lease.owner], self.settings, cluster, lease).run()
        assert self.run(refusal(asking)) is (None if job.lease == lease else LeaseLost)
        if job.lease == lease:
            job.lose("gang_lost")
            job.held_by(None)

    # What always holds.

    @invariant()
    def the_database_says_the_same(self) -> None:
        """Also of what is given away, which is never more than there is."""
        touched, self.touched = [self.jobs[job_id] for job_id in sorted(set(self.touched))], []
        held = sum(job.devices for job in self.jobs.values() if job.state in HOLDING)
        assert held <= CAPACITY
        if touched:
            found = self.run(stored(self.stores["a"], touched))
            assert found == (list(map(said, touched)), {"cpu": held} if held else {})

    def teardown(self) -> None:
        found, _ = self.run(stored(self.stores["b"], list(self.jobs.values())))
        assert found == list(map(said, self.jobs.values()))


def said(job: Known) -> dict[str, Any]:
    """What the model has to say of a job."""
    return {
        "state": job.state,
        "passed": job.passed,
        "attempt": job.attempt,
        "spent": (job.restarts, job.retries),
        "life": (job.deleted, job.retries_of, job.retried_by),
        "lease": job.lease and (job.lease.token, job.lease.owner),
        "living": not job.free,
        "ended": (job.state in FINAL, None if job.state in FINAL else job.passed[-1]),
        "steps": [(step, *record) for step, record in job.steps.items()],
        "stored": [gang.stored for _, gang in sorted(job.gangs.items())],
    }


async def stored(store: Store, known: list[Known]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The same from the database, and the devices that are given away, by kind."""
    async with store.read() as tx:
        return [await _stored(tx, job) for job in known], await rows.held_ranks(tx)


async def _stored(tx: AsyncConnection, job: Known) -> dict[str, Any]:
    """The audit trail says why a job waits, too: then it says its state again."""
    row = await rows.by_id(tx, job.id)
    trail = await events.after(tx, job.id, 0, 10_000)
    trained = await steps.after(tx, job.id, 0, 10_000)
    made = [await attempts.get(tx, job.id, number) for number in range(1, job.attempt + 1)]
    assert row is not None
    assert [event["position"] for event in trail] == list(range(1, row["event_pos"] + 1))
    passed = [state for state, _ in groupby(event["data"]["state"] for event in trail if event["kind"] == "state")]
    until = row["lease_until"]
    return {
        "state": row["state"],
        "passed": passed,
        "attempt": row["attempt"],
        "spent": (row["restarts"], row["retries"]),
        "life": (row["deleted_at"] is not None, row["retry_of"], row["retried_by"]),
        "lease": row["lease_token"] and (row["lease_token"], row["lease_owner"]),
        "living": until is not None and until > time.time(),
        "ended": (row["finished_at"] is not None, None if row["state"] in FINAL else passed[-1]),
        "steps": [(step["step"], step["attempt"], step["loss"]) for step in trained],
        "stored": [None if attempt is None else attempt["cursor"] for attempt in made],
    }


async def refusal(work: Coroutine[Any, Any, Any]) -> type[Exception] | None:
    """How something is refused, None if it is not."""
    try:
        await work
    except (JobDeleted, JobEnded, JobNotEnded, JobPausing, JobSucceeded, LeaseLost) as error:
        return type(error)
    return None


async def found(store: Store, job_ids: set[str]) -> set[str]:
    """Those of the jobs that the database still has."""
    async with store.read() as tx:
        return set(await rows.placements(tx, sorted(job_ids)))


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    return await asyncio.gather(*work)


async def adopted(store: Store, owner: str) -> list[Lease]:
    """As a dispatcher takes over what no other looks after."""
    async with store.read() as tx:
        found = await leases.abandoned(tx, 100)
    taken = []
    for job_id in found:
        lease = Lease(job_id, uuid4().hex, owner)
        async with store.write() as tx:
            if await leases.take(tx, lease, 1000.0):
                taken.append(lease)
    return taken


async def renew(store: Store, held: list[Lease], seconds: float) -> set[str]:
    async with store.write() as tx:
        return await leases.renew(tx, [lease.token for lease in held], seconds)


async def released(store: Store, tokens: list[str]) -> None:
    async with store.write() as tx:
        await leases.release(tx, tokens)


async def buried(store: Store, owner: str) -> None:
    async with store.write() as tx:
        await leases.release_all_of(tx, [owner])


class Run:
    """One event loop for all of a test's examples."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield Run(runner)


@POSTGRESQL_IN_FULL
@pytest.mark.parametrize(
    "examples", [8, pytest.param(400, marks=[pytest.mark.full, pytest.mark.timeout(900)])], ids=["few", "many"]
)
def test_the_database_says_what_the_model_says(run: Run, database_url: str, tmp_path: Path, examples: int) -> None:
    settings = Settings(data_dir=tmp_path, cpu_ranks_per_core=4, lease_s=1000.0, retry_backoff_s=1e-9)
    stores = [Store(database_url) for _ in "ab"]
    budget = hypothesis.settings(
        max_examples=examples if stores[0].dialect == "sqlite" else examples // 4,  # which is that much slower
        stateful_step_count=50,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate,),  # to make a long story short would take minutes
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    try:
        run_state_machine_as_test(lambda: Life(run, stores, settings), settings=budget)  # type: ignore[no-untyped-call]
    finally:
        for store in stores:
            run(store.close())
