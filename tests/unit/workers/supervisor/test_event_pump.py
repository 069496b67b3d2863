"""What the pump yields of a rank's events, and when it acknowledges them. With real ranks: tests/integration/workers/supervisor."""

import asyncio
import contextlib
import time
from types import SimpleNamespace
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.event_buffer import Event, Spool
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.messages.secret import Secret
from shardyard.workers.program.program import ENTRY
from shardyard.workers.rank.actor import Reservation
from shardyard.workers.supervisor import event_pump
from shardyard.workers.supervisor.event_pump import PumpedEvent, RankLost
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.journal.journal import Journal
from shardyard.workers.supervisor.policies.failures import Failure
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.ranks.neighbours import starts


class Written(Journal):
    """A journal that only notes how many events it had at each write."""

    def __init__(self, spool: Spool) -> None:
        super().__init__("shardyard-a-1", spool, bytes)
        self.writes: list[int] = []

    async def settled(self, gather_s: float = 0.0) -> None:
        self.writes.append(self.spool.last)


class Rank:
    """An actor as far as the pump calls it: it has these batches of events, then it is gone."""

    def __init__(self, *batches: list[Event]) -> None:
        self.pull: Any = self
        self.batches = list(batches)
        self.acknowledged: list[int] = []

    async def remote(self, after: int, wait_s: float) -> list[Event]:
        self.acknowledged.append(after)
        if not self.batches:
            raise TimeoutError("no answer")
        return self.batches.pop(0)


def event(number: int, kind: str, **data: Any) -> Event:
    return {"seq": number, "ts": 1.0, "kind": kind, "data": data}


async def follow(rank: Rank, journal: Written, entry: str = "") -> list[PumpedEvent | RankLost]:
    """What is yielded, each applied to the member as `repair.py` does."""
    gang = Gang(GangSpec("shardyard-a-1", {}, 1, entry=entry), journal, journal.spool, GangSecrets(False))
    here = Reservation(0, "node-a", "host", 1, None, 2, 1, ())
    member = Member(0, handle=RankHandle(rank), reservation=here)
    found = []
    async with contextlib.aclosing(gang.pump.pull_rank([member], member, None)) as taken:
        async for one in taken:
            found.append(one)
            if isinstance(one, PumpedEvent):
                member.pulled, member.exited = one.number, one.exited
                member.done = member.done or one.done
    return found


async def test_events_are_acknowledged_after_the_write_that_has_them() -> None:
    journal = Written(Spool(1 << 20))
    rank = Rank(
        [
            event(1, "log", rank=0, stream="stdout", first=1, lines=["a"]),
            event(2, "log", rank=0, stream="stdout", first=2, lines=["b"]),
        ],
        [event(3, "log", rank=0, stream="stdout", first=3, lines=["c"])],
    )
    assert await follow(rank, journal) == [
        PumpedEvent(1),
        PumpedEvent(2),
        PumpedEvent(3),
        RankLost("the rank's actor is lost: TimeoutError: no answer"),
    ]
    assert rank.acknowledged == [0, 2, 3] and journal.writes == [0, 2, 3]


@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
async def test_the_times_of_a_rank_whose_clock_is_off_are_those_of_this_node(
    ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher corrects all times of a gang by the clock of its supervisor."""
    journal, now = Written(Spool(1 << 20)), 50_000.0
    monkeypatch.setattr(event_pump, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))
    lines = {"rank": 0, "stream": "stdout", "first": 1, "lines": ["a"]}
    timed: list[Event] = [
        {"seq": number, "ts": now + ahead_s - age_s, "kind": "log", "data": lines, "now": now + ahead_s}
        for number, age_s in ((1, 2.0), (2, 0.5))
    ]
    await follow(Rank(timed), journal)
    assert [one["ts"] for one in journal.spool.take(0)] == [now - 2.0, now - 0.5]
    earlier: list[Event] = [event(1, "log", **lines)]
    await follow(Rank(earlier), of_earlier := Written(Spool(1 << 20)))
    assert [one["ts"] for one in of_earlier.spool.take(0)] == [earlier[0]["ts"]], (
        "an earlier version's actor sends no time"
    )


@pytest.mark.parametrize(("entry", "incidents"), [(ENTRY, 1), ("", 0)])
async def test_printed_metrics_that_cannot_be_used_are_one_incident(entry: str, incidents: int) -> None:
    """The others are stored. Shardyard's own loop prints none."""
    journal = Written(Spool(1 << 20))
    lines = ['{"step": 4, "shardyard": {"acc": 0.5}}', '{"shardyard": {"acc": 1}}', '{"shardyard": {"acc": 2}}']
    logs = [event(at, "log", rank=0, stream="stdout", first=3 * at, lines=lines) for at in (1, 2)]
    await follow(Rank(logs), journal, entry)
    emitted = journal.spool.take(0)
    assert sum(one["kind"] == "metrics" for one in emitted) == 2 * incidents
    found = [one["data"] for one in emitted if one["kind"] == "incident"]
    assert [(one["cause"], one["rank"], one["step"]) for one in found] == [("metric_line_unusable", 0, 4)] * incidents
    assert all(one["message"] == f"it has no step: {lines[1]}" for one in found)


@pytest.mark.parametrize(("entry", "emitted"), [(ENTRY, [5, 5, 3]), ("", [5])])
async def test_a_program_may_save_a_step_again(entry: str, emitted: list[int]) -> None:
    journal = Written(Spool(1 << 20))
    saved = [event(number, "checkpoint", step=step, path="/p", bytes=1) for number, step in enumerate((5, 5, 3), 1)]
    await follow(Rank(saved), journal, entry)
    assert [one["data"]["step"] for one in journal.spool.take(0) if one["kind"] == "checkpoint"] == emitted


async def test_workers_that_ray_train_starts_again_are_an_incident_and_no_failure() -> None:
    journal = Written(Spool(1 << 20))
    failure = {"worker": 3, "rank": 0, "message": "ValueError: once", "traceback": "Traceback"}
    events = [
        event(1, "log", rank=0, stream="stdout", first=1, lines=["last words"]),
        event(2, "ray_workers_failed", failures=[failure], message=""),
        event(3, "ray_workers_started", seconds=2.5),
        event(4, "ray_workers_failed", failures=[failure], message=""),
    ]
    assert (await follow(Rank(events), journal, ENTRY))[:4] == [PumpedEvent(number) for number in (1, 2, 3, 4)]
    emitted = [one for one in journal.spool.take(0) if one["kind"] in ("incident", "repair", "state")]
    assert [one["kind"] for one in emitted] == ["incident", "repair", "incident"]
    incident, repair = emitted[0]["data"], emitted[1]["data"]
    assert (incident["cause"], incident["rank"], incident["node"]) == ("ray_worker_failed", 0, "node-a")
    assert (incident["traceback"], incident["log"]) == ("Traceback", ["last words"])
    assert (repair["cause"], repair["generation"], repair["seconds"]) == ("ray_worker_failed", 2, 2.5)


async def test_what_a_preflight_found_slow_is_an_incident_and_no_failure() -> None:
    journal = Written(Spool(1 << 20))
    slow = [{"rank": 0, "message": "Node host is slow."}]
    found = await follow(Rank([event(1, "preflight", backend="gloo", seconds=1.0, speeds=[], slow=slow)]), journal)
    assert found[0] == PumpedEvent(1)
    emitted = [one for one in journal.spool.take(0) if one["kind"] in ("preflight", "incident")]
    assert [one["kind"] for one in emitted] == ["preflight", "incident"]
    incident = emitted[1]["data"]
    assert (incident["cause"], incident["rank"], incident["node"]) == ("slow_network", 0, "node-a")
    assert incident["message"] == "Node host is slow."


@pytest.mark.parametrize(("status", "is_failure"), [(-9, False), (-11, True)])
async def test_an_end_that_the_gang_ordered_is_no_failure(status: int, is_failure: bool) -> None:
    """Another rank's exception, which looks like that of a lost peer, would seem to follow from it. A crash meanwhile is one."""
    (taken,) = await follow(
        Rank([event(1, "exit", status=status, generation=2, ordered=True)]), Written(Spool(1 << 20))
    )
    assert taken.exited and (taken.failure is not None) == is_failure


async def test_an_exit_is_a_lost_rank_unless_the_rank_was_done() -> None:
    killed = Rank([event(1, "exit", status=-9, generation=2)])
    (taken,) = await follow(killed, Written(Spool(1 << 20)))
    lost = Failure("rank_lost", 0, "the trainer was killed by SIGKILL", "node-a")
    assert taken == PumpedEvent(1, exited=True, failure=lost)
    done = Rank([event(1, "done"), event(2, "exit", status=0, generation=2)])
    assert await follow(done, Written(Spool(1 << 20))) == [PumpedEvent(1, done=True), PumpedEvent(2, exited=True)]


async def test_a_trainer_that_was_not_forked_is_a_lost_rank_with_the_reason() -> None:
    rank = Rank([event(1, "exit", status=None, generation=2, unforked="Cannot allocate memory")])
    (taken,) = await follow(rank, Written(Spool(1 << 20)))
    message = "the node's fork server could not fork the trainer: Cannot allocate memory"
    assert taken == PumpedEvent(1, exited=True, failure=Failure("rank_lost", 0, message, "node-a"))


async def test_the_incident_of_an_abort_at_the_exit_has_a_hint() -> None:
    lines = ["done", "terminate called without an active exception"]
    log = event(1, "log", rank=0, stream="stderr", first=1, lines=lines)
    *_, taken = await follow(Rank([log, event(2, "exit", status=-6, generation=2)]), Written(Spool(1 << 20)))
    assert isinstance(taken, PumpedEvent) and taken.failure is not None
    assert "destroy_process_group()" in taken.failure.message


@pytest.mark.parametrize("stream", ["exec", "gate"])
async def test_what_users_do_beside_a_rank_is_no_reason_for_its_end(stream: str) -> None:
    lines = ["terminate called without an active exception"]
    log = event(1, "log", rank=0, stream=stream, first=1, lines=lines)
    *_, taken = await follow(Rank([log, event(2, "exit", status=-6, generation=2)]), Written(Spool(1 << 20)))
    assert isinstance(taken, PumpedEvent) and taken.failure is not None
    assert "destroy_process_group()" not in taken.failure.message


async def test_the_line_of_nccls_watchdog_is_kept_though_stacks_follow_it() -> None:
    line = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=58)"
    stacks = [f"  File loop.py, line {number}" for number in range(500)]
    aborted = Rank(
        [
            event(1, "log", rank=0, stream="stderr", first=1, lines=[line, *stacks]),
            event(2, "log", rank=0, stream="stderr", first=502, lines=stacks),
            event(3, "exit", status=-6, generation=2),
        ]
    )
    *_, taken = await follow(aborted, Written(Spool(1 << 20)))
    assert isinstance(taken, PumpedEvent) and taken.failure is not None
    assert taken.failure.is_abort and line in taken.failure.message and taken.failure.rank is None


async def test_the_exit_of_an_older_generations_trainer_is_ignored() -> None:
    rank = Rank([event(1, "exit", status=-9, generation=1)], [event(2, "exit", status=-15, generation=2)])
    first, second = await follow(rank, Written(Spool(1 << 20)))
    assert first == PumpedEvent(1)
    assert isinstance(second, PumpedEvent) and second.exited and second.failure is not None


async def test_a_step_is_emitted_and_an_exception_names_the_rank_to_blame() -> None:
    journal = Written(Spool(1 << 20))
    raised = event(2, "failed", type="ValueError", message="no", traceback="…", step=1)
    rank = Rank([event(1, "step", step=1, step_s=0.1, loss=2.0), raised, event(3, "exit", status=1, generation=2)])
    step, failed, exited = await follow(rank, journal)
    assert step == PumpedEvent(1, step=1)
    assert isinstance(failed, PumpedEvent) and failed.failed and failed.failure is not None
    assert (failed.failure.cause, failed.failure.rank, failed.failure.message) == ("exception", 0, "ValueError: no")
    assert isinstance(exited, PumpedEvent) and exited.exited
    assert [event["kind"] for event in journal.spool.take(0)][-1] == "step"


async def test_ranks_wait_while_the_spool_is_full() -> None:
    spool = Spool(200)
    journal, beats = Written(spool), asyncio.Event()

    class Beaten(Rank):
        def __init__(self) -> None:
            super().__init__()
            self.heartbeat = type("Beat", (), {"remote": staticmethod(self.beaten)})

        async def beaten(self) -> None:
            beats.set()
            spool.take(spool.last)

    spool.add("log", {"lines": ["x" * 400]})
    spec = GangSpec("shardyard-a-1", {}, 1, lease_s=0.03)
    gang, rank = Gang(spec, journal, spool, GangSecrets(False)), Beaten()
    member = Member(0, handle=RankHandle(rank))
    found = [one async for one in gang.pump.pull_rank([member], member, None)]
    assert beats.is_set() and rank.acknowledged == [0] and isinstance(found[-1], RankLost)


async def test_what_ended_trainers_have_left_is_pulled_though_the_spool_is_full() -> None:
    """Else a repair would take every rank for one that does not report its trainer's end, and would give up its snapshots."""
    spool = Spool(200)
    spool.add("log", {"lines": ["x" * 400]})
    spec = GangSpec("shardyard-a-1", {}, 1)
    said = event(1, "log", rank=0, stream="stderr", first=1, lines=["last words"])
    rank = Rank([said], [event(2, "exit", status=-9, generation=1)])
    gang = Gang(spec, Written(spool), spool, GangSecrets(False))
    member = Member(0, handle=RankHandle(rank))

    async def follow() -> None:
        async with contextlib.aclosing(gang.pump.pull_rank([member], member, None)) as taken:
            async for one in taken:
                assert isinstance(one, PumpedEvent)
                member.pulled, member.exited = one.number, one.exited

    member.reader = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    assert rank.acknowledged == [], "while it trains it waits"
    assert await gang.pump.drain([member], PATIENCE_S) == [] and member.exited
    assert [list(one["data"]["lines"]) for one in spool.take(0)][1:] == [["last words"]]


async def test_what_goes_on_beside_a_trainer_does_not_lengthen_the_wait_for_its_end() -> None:
    """A process in a call of the kernel cannot be killed, and its node's use is sampled on."""
    journal = Written(Spool(1 << 20))
    gang = Gang(GangSpec("shardyard-a-1", {}, 1), journal, journal.spool, GangSecrets(False))
    events = [
        event(1, "system", rank={"cpu": 0.0}, node={"cpu": 50.0}),
        event(2, "log", rank=0, stream="exec", first=1, lines=["a"]),
        event(3, "log", rank=0, stream="gate", first=1, lines=["b"]),
        event(4, "log", rank=0, stream="stderr", first=1, lines=["c"]),
    ]
    member = Member(0, handle=RankHandle(Rank(events)))
    async with contextlib.aclosing(gang.pump.pull_rank([member], member, None)) as taken:
        found = [one async for one in taken]
    assert [one.beside for one in found if isinstance(one, PumpedEvent)] == [True, True, True, False]


async def test_a_rank_whose_events_the_journal_is_slow_to_write_is_not_late() -> None:
    """Its exit is not pulled before they are written."""
    journal, begun, written = Written(Spool(1 << 20)), asyncio.Event(), asyncio.Event()
    gang = Gang(GangSpec("shardyard-a-1", {}, 1), journal, journal.spool, GangSecrets(False))
    said = event(1, "log", rank=0, stream="stderr", first=1, lines=["last words"])
    member = Member(0, handle=RankHandle(Rank([said], [event(2, "exit", status=-9, generation=1)])))

    async def settled(gather_s: float = 0.0) -> None:
        if member.pulled:
            begun.set()
            await written.wait()

    async def follow() -> None:
        async with contextlib.aclosing(gang.pump.pull_rank([member], member, None)) as taken:
            async for one in taken:
                assert isinstance(one, PumpedEvent)
                member.pulled, member.exited = one.number, one.exited

    journal.settled = settled  # type: ignore[method-assign]
    member.reader = asyncio.create_task(follow())
    await begun.wait()
    asyncio.get_running_loop().call_later(0.1, written.set)
    assert await gang.pump.drain([member], 0.01, PATIENCE_S) == []
    assert member.exited and not member.writing


class Startable:
    """An actor that waits for its run, or has it; then it is gone."""

    def __init__(self, started: bool) -> None:
        self.started = started
        self.calls: list[Any] = []
        self.start, self.pull, self.heartbeat = Call(self._start), Call(self._pull), Call(self._beat)

    async def _start(self, run: Any, coords: Any, holder: Any, replicas: Any, secrets: Any) -> bool:
        self.calls.append(secrets)
        self.started = self.started or secrets is not None
        return self.started

    async def _pull(self, after: int, wait_s: float) -> list[Event]:
        raise TimeoutError("no answer")

    async def _beat(self) -> None: ...


class Call:
    def __init__(self, remote: Any) -> None:
        self.remote = remote


@pytest.mark.parametrize("started", [True, False])
async def test_only_a_rank_without_its_run_waits_for_secrets(started: bool) -> None:
    """After a supervisor's death those that run are followed at once, though nothing gives their secrets again."""
    journal, secrets, actor = Written(Spool(1 << 20)), GangSecrets(True), Startable(started)
    gang = Gang(GangSpec("shardyard-a-1", {}, 1, secrets=True), journal, journal.spool, secrets)
    here = Reservation(0, "node-a", "host", 1, None, 2, 1, ())
    member = Member(0, handle=RankHandle(actor), reservation=here)
    (start,) = starts(gang.spec, [member], None)

    async def first() -> PumpedEvent | RankLost:
        async with contextlib.aclosing(gang.pump.pull_rank([member], member, start)) as taken:
            return await anext(taken)

    following = asyncio.ensure_future(first())
    if not started:
        await asyncio.wait_for(secrets.until_missed(), PATIENCE_S)
        secrets.provide([Secret("TOKEN", "hf_abcdefgh")])
    assert isinstance(await asyncio.wait_for(following, PATIENCE_S), RankLost)
    given = [{"variable": "TOKEN", "value": "hf_abcdefgh", "file": False}]
    assert actor.calls == ([None] if started else [None, given])
    assert not secrets.missed


@pytest.mark.parametrize(("room", "emitted"), [(1 << 20, ["system"]), (250, [])])
async def test_samples_are_no_progress_and_the_first_to_be_left_out(
    room: int, emitted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Written(Spool(room))
    gang = Gang(GangSpec("shardyard-a-1", {}, 1), journal, journal.spool, GangSecrets(False))
    if not emitted:
        journal.spool.add("log", {"lines": ["x" * 10]})
        assert journal.spool.half_full and not journal.spool.full
    progress: list[str] = []
    monkeypatch.setattr(gang.watch.progress, "began", lambda: progress.append("began"))
    rank = Rank([event(1, "system", rank={"cpu": 99.0}, node={"cpu": 50.0}), event(2, "exit", status=0, generation=2)])
    if not emitted:
        gang.pump._emit_sample({"step": 1, "steps": 1, "memory": [None], "memory_of": None}, [])
    here = Reservation(0, "node-a", "host", 1, None, 2, 1, ())
    member = Member(0, handle=RankHandle(rank), reservation=here, done=True)
    async with contextlib.aclosing(gang.pump.pull_rank([member], member, None)) as taken:
        async for one in taken:
            member.exited = isinstance(one, PumpedEvent) and one.exited
    assert progress == []
    found = [one for one in journal.spool.newer(0) if one["kind"] != "log"]
    assert [one["kind"] for one in found] == emitted
    for one in found:
        assert one["data"] == {"nodes": {"node-a": {"cpu": 50.0}}, "ranks": {"cpu": [99.0]}}
    assert gang.merger.newest_step == 0
