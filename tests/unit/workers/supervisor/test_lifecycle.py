"""The table of phases, and the end of a command. What happens in each phase: tests/integration/workers/supervisor."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from harness.patience import PATIENCE_S
from pytest import MonkeyPatch

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.exec_request import Exec, ExecEnd
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor import lifecycle as life
from shardyard.workers.supervisor.event_pump import PumpedEvent, RankLost
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.gang_state import GangState, MergerState, PendingExec, Phase, RankState, Repair
from shardyard.workers.supervisor.journal.journal import Journal
from shardyard.workers.supervisor.lifecycle import MOVES, Lifecycle, begin_each
from shardyard.workers.supervisor.policies.failures import Failure
from shardyard.workers.supervisor.ranks import handles, placement
from shardyard.workers.supervisor.ranks.handles import RankHandle


def test_every_phase_has_its_moves_and_only_the_last_has_none() -> None:
    assert list(MOVES) == list(get_args(Phase))
    assert [phase for phase, following in MOVES.items() if not following] == ["ended"]


def test_every_phase_is_reached_and_leads_to_the_end() -> None:
    assert {following for moves in MOVES.values() for following in moves} == set(MOVES) - {"placing"}
    assert all("ending" in moves for phase, moves in MOVES.items() if phase not in ("ending", "ended"))
    assert MOVES["ending"] == ("ended",), "an end cannot be undone"


async def nothing(*_: object) -> None:
    pass


async def test_a_command_ends_after_its_output_also_where_the_ranks_clock_is_ahead() -> None:
    """Streams are in order of time: a command line that saw the end first would leave the output out. `at`: as earlier versions sent it."""
    spec, spool, ahead = GangSpec("shardyard-a-1", {}, 1), Spool(1 << 20), time.time() + 3600
    state = GangState(phase="training", ranks=[RankState(0, name="rank-0", pulled=7)])
    gang = Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state)

    async def execute(_: Exec) -> ExecEnd:
        return ExecEnd("exit status 0", 0, last=7, at=ahead)

    handle: Any = SimpleNamespace(execute=execute)
    gang.members[0].handle, gang.execs.queue.settled = handle, nothing
    await gang.execs.queue.add("x1", PendingExec(Exec("x1", 0, ("ls",), 5)))
    lifecycle = Lifecycle(gang)
    lifecycle.run_orders()
    async with asyncio.timeout(PATIENCE_S):
        await spool.wait(0, PATIENCE_S)
    [event] = spool.take(0)
    assert (event["kind"], event["ts"]) == ("exec", ahead)


@pytest.mark.parametrize("checkpoint", [4, 5])
async def test_a_preemption_saves_what_ranks_have_in_memory_that_are_left_by_one(checkpoint: int) -> None:
    """They have ended together, and wait for it: they will not end again, and no collective can save their state."""
    spec, spool = GangSpec("shardyard-a-1", {}, 3, own_clocks=2), Spool(1 << 20)
    ranks = [RankState(rank, done=rank != 1, exited=True) for rank in range(3)]
    merger = MergerState(newest_step=5, newest_facts={"checkpoint": checkpoint})
    state = GangState(phase="training", stopping="preempt", ranks=ranks, merger=merger)
    lifecycle = Lifecycle(Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state))
    lifecycle.gang.journal.settled = nothing  # type: ignore[method-assign]
    saved = []

    async def save_from_memory() -> str:
        saved.append(True)
        return "no step is whole"

    lifecycle.generations.save_from_memory = save_from_memory  # type: ignore[method-assign]
    lifecycle.generations.absences.find()
    async with asyncio.timeout(PATIENCE_S):
        await lifecycle._save()
    assert saved == [True]
    incidents = [(event["data"]["cause"], event["data"]["message"]) for event in spool.take(0)]
    assert incidents == ([("checkpoint_failed", "no step is whole")] if checkpoint == 4 else [])
    lifecycle.gang.stopping = "cancel"
    await lifecycle._save()
    assert saved == [True], "a cancelled job saves nothing"


@pytest.mark.parametrize(
    ("failure", "early", "entry", "then", "saves"),
    [
        (Failure("rank_lost", 1, "killed"), False, "", "preempt", 1),
        (Failure("rank_lost", 1, "killed"), True, "", "preempt", 1),
        (Failure("rank_lost", 1, "killed"), False, "", "cancel", 0),
        (Failure("rank_lost", 1, "killed"), False, "program", "preempt", 0),
        (Failure("ValueError", 1, "bad data"), False, "", "preempt", 0),
    ],
)
async def test_a_preemption_saves_what_ranks_have_in_memory_if_one_dies_before_all_have_saved(
    failure: Failure, early: bool, entry: str, then: str, saves: int, monkeypatch: MonkeyPatch
) -> None:
    """No repair follows, and the others cannot save without it."""
    spec, spool, saved = GangSpec("shardyard-a-1", {}, 2, entry=entry), Spool(1 << 20), []
    merger = MergerState(newest_step=5, newest_facts={"checkpoint": 4})
    ranks = [RankState(0), RankState(1, exited=True)]
    state = GangState(phase="training", stopping="preempt", ranks=ranks, merger=merger)
    lifecycle = Lifecycle(Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state))
    parts: Any = lifecycle
    parts.gang.journal.settled, parts.gang.members[0].handle = nothing, RankHandle(None)

    async def save(_: object) -> None:
        lifecycle.generations.fail(failure)
        lifecycle.stop(then)

    async def save_from_memory() -> str:
        saved.append(True)
        return "no step is whole"

    monkeypatch.setattr(RankHandle, "save", save)
    parts.generations.save_from_memory = save_from_memory
    if early:
        lifecycle.generations.fail(failure)
    parts.gang.ended.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await lifecycle._after_generation() == "ending"
    assert len(saved) == saves
    assert [event["data"]["cause"] for event in spool.take(0)] == ["checkpoint_failed"] * saves


def preempted_in_memory(phase: Phase, step: int, entry: str, monkeypatch: MonkeyPatch) -> tuple[Any, list[str]]:
    """A lifecycle whose gang has reported `step` and saved step 4, and whose memory is not whole; when it was asked to save from memory."""
    spec, spool, saved = GangSpec("shardyard-a-1", {}, 2, entry=entry), Spool(1 << 20), list[str]()
    merger = MergerState(newest_step=step, newest_facts={"checkpoint": 4} if step else {})
    state = GangState(
        phase=phase, repair=Repair("node_lost", None, 0.0), ranks=[RankState(0), RankState(1)], merger=merger
    )
    lifecycle: Any = Lifecycle(Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state))

    async def save_from_memory() -> str:
        saved.append(lifecycle.gang.phase)
        return "no step is whole"

    lifecycle.gang.journal.settled, lifecycle.generations.save_from_memory = nothing, save_from_memory
    monkeypatch.setattr(RankHandle, "save", nothing)
    lifecycle.gang.members[0].handle = RankHandle(None)
    return lifecycle, saved


@pytest.mark.parametrize(
    ("step", "entry", "then", "saves", "incidents"),
    [
        (5, "", "preempt", 1, ["checkpoint_failed"]),
        (4, "", "preempt", 1, []),
        (0, "", "preempt", 1, []),  # the gang's first start failed
        (5, "", "cancel", 0, []),
        (5, "program", "preempt", 0, []),
    ],
)
async def test_a_preemption_during_a_repair_saves_what_ranks_have_in_memory(
    step: int, entry: str, then: str, saves: int, incidents: list[str], monkeypatch: MonkeyPatch
) -> None:
    """Their trainers are dead, and the repair is given up: no generation follows in which they could save it."""
    lifecycle, saved = preempted_in_memory("repairing", step, entry, monkeypatch)

    async def repair() -> bool:
        lifecycle.stop(then)
        return False

    lifecycle.generations.repair = repair
    async with asyncio.timeout(PATIENCE_S):
        assert await lifecycle._repair() == "ending"
    assert saved == ["repairing"] * saves
    assert [event["data"]["cause"] for event in lifecycle.gang.spool.take(0)] == incidents


async def test_a_preemption_saves_what_ranks_have_in_memory_that_do_not_end_in_time(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(life, "SAVE_S", 0.0)
    lifecycle, saved = preempted_in_memory("training", 5, "", monkeypatch)
    lifecycle.stop("preempt")
    async with asyncio.timeout(PATIENCE_S):
        assert await lifecycle._after_generation() == "ending"
    assert saved == ["training"]
    assert [event["data"]["cause"] for event in lifecycle.gang.spool.take(0)] == ["checkpoint_failed"]


async def test_a_preemption_of_a_gang_that_has_not_started_saves_nothing(monkeypatch: MonkeyPatch) -> None:
    """Actors that do not start would be asked what they have in memory, for minutes."""
    lifecycle, saved = preempted_in_memory("placing", 0, "", monkeypatch)
    lifecycle.generations.fail(Failure("rank_lost", 1, "its actor died at the start"))
    lifecycle.stop("preempt")
    async with asyncio.timeout(PATIENCE_S):
        assert await lifecycle._after_generation() == "ending"
    assert saved == []


class Beaten:
    """An actor that counts heartbeats. `beaten(2)` waits for the second one."""

    def __init__(self) -> None:
        self.beats: asyncio.Queue[None] = asyncio.Queue()

    async def heartbeat(self, _: float) -> None:
        self.beats.put_nowait(None)

    async def beaten(self, times: int) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(times):
                await self.beats.get()
        return True


def beaten_gang(state: GangState) -> tuple[Lifecycle, Beaten]:
    """Two ranks with leases of 30 ms; the first has an actor."""
    spec, spool, actor = GangSpec("shardyard-a-1", {}, 2, lease_s=0.03, own_clocks=2), Spool(1 << 20), Beaten()
    lifecycle = Lifecycle(Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state))
    lifecycle.gang.members[0].handle = cast("Any", actor)
    lifecycle.gang.journal.settled = nothing  # type: ignore[method-assign]
    return lifecycle, actor


async def test_a_rank_that_is_ready_keeps_its_lease_until_the_slowest_has_started() -> None:
    lifecycle, actor = beaten_gang(GangState(phase="placing", ranks=[RankState(0), RankState(1)]))
    parts: Any = lifecycle

    async def placed() -> bool:
        return True

    parts.gang.placement.place = parts._make_actors = placed
    parts.generations.open = lambda: actor.beaten(2)
    assert await lifecycle._place() == "training"


class Reserving:
    """An actor that is asked to reserve: `actor.reserve.remote()` raises `error`, or does not return if that is None."""

    def __init__(self, error: Exception | None = None) -> None:
        self.reserve = self.heartbeat = self.stop = self
        self.error = error

    async def remote(self, *_: object) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


def reserving_gang(monkeypatch: MonkeyPatch, *actors: Reserving) -> tuple[Lifecycle, Spool]:
    """A gang that is placed on nodes "n0", "n1", … and whose ranks have these actors."""
    spec, spool = GangSpec("shardyard-a-1", {}, len(actors)), Spool(1 << 20)
    ranks = [RankState(rank, bundle=rank) for rank in range(len(actors))]
    lifecycle = Lifecycle(
        Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), GangState(ranks=ranks))
    )
    for member, actor in zip(lifecycle.gang.members, actors, strict=True):
        member.handle = RankHandle(actor)
    parts: Any = lifecycle

    async def placed() -> bool:
        return True

    monkeypatch.setattr(placement, "bundle_nodes", lambda _: {rank: f"n{rank}" for rank in range(len(actors))})
    parts.gang.placement.place = parts._make_actors = placed
    parts.gang.placement.group = "placed"
    parts.gang.journal.settled = parts.gang.placement.remove = nothing
    return lifecycle, spool


@pytest.mark.parametrize(
    ("died", "cause", "message"),
    [
        (False, "start_failed", "it did not start: OSError: no process is left"),
        (True, "rank_lost", "its actor died at the start: "),
    ],
    ids=["error", "death"],
)
async def test_a_rank_that_cannot_start_is_named_with_its_node(
    monkeypatch: MonkeyPatch, died: bool, cause: str, message: str
) -> None:
    """A node on which no rank starts is cordoned by that."""
    from ray.exceptions import ActorDiedError, RayTaskError

    error = ActorDiedError() if died else RayTaskError("reserve", "a traceback", OSError("no process is left"))
    lifecycle, spool = reserving_gang(monkeypatch, Reserving(), Reserving(error))
    async with asyncio.timeout(PATIENCE_S):
        await lifecycle.run()
    [incident, state] = spool.take(0)
    assert [incident["data"][key] for key in ("cause", "rank", "node")] == [cause, 1, "n1"]
    assert incident["data"]["message"].startswith(message)
    assert (state["data"]["state"], state["data"]["reason"]) == ("failed", cause)


@pytest.mark.parametrize(
    ("silent", "rank", "node", "message"),
    [
        ((1,), 1, "n1", "it did not start: TimeoutError: no answer within 0.02 s"),
        ((2, 3), 2, "n2", "it did not start: TimeoutError: no answer within 0.02 s"),
        (
            (0, 1, 2, 3),
            None,
            None,
            "the gang did not start: 4 ranks on 3 nodes have not answered: TimeoutError: no answer within 0.02 s",
        ),
    ],
    ids=["one rank", "one node", "several nodes"],
)
async def test_a_node_is_named_where_only_its_ranks_do_not_answer(
    silent: tuple[int, ...], rank: int | None, node: str | None, message: str, monkeypatch: MonkeyPatch
) -> None:
    """What is slow for several nodes, such as their storage, is the fault of none, and cordons none."""
    monkeypatch.setattr(handles, "START_S", 0.02)
    lifecycle, spool = reserving_gang(monkeypatch, *(Reserving() for _ in range(4)))
    monkeypatch.setattr(placement, "bundle_nodes", lambda _: {0: "n0", 1: "n1", 2: "n2", 3: "n2"})

    async def answers(*_: object) -> None:
        pass

    for member in lifecycle.gang.members:
        if member.rank not in silent:
            cast("Any", member).handle = SimpleNamespace(reserve=answers, stop=answers)
    async with asyncio.timeout(PATIENCE_S):
        await lifecycle.run()
    incident = spool.take(0)[0]["data"]
    assert (incident["cause"], incident.get("rank"), incident.get("node")) == ("start_failed", rank, node)
    assert incident["message"] == message


async def test_a_rank_whose_actor_dies_ends_the_wait_for_those_that_do_not_answer(monkeypatch: MonkeyPatch) -> None:
    """Nor do the others that are late by then hide it."""
    from ray.exceptions import ActorDiedError

    lifecycle, spool = reserving_gang(
        monkeypatch, Reserving(TimeoutError("late")), Reserving(), Reserving(ActorDiedError())
    )
    async with asyncio.timeout(PATIENCE_S):
        await lifecycle.run()
    incident = spool.take(0)[0]["data"]
    assert (incident["cause"], incident["rank"], incident["node"]) == ("rank_lost", 2, "n2")


async def test_ranks_keep_their_leases_while_what_they_have_in_memory_is_saved() -> None:
    ranks = [RankState(0, done=True, exited=True), RankState(1, exited=True)]
    saved = MergerState(newest_facts={"checkpoint": 0})
    lifecycle, actor = beaten_gang(GangState(phase="training", stopping="preempt", ranks=ranks, merger=saved))
    lifecycle.generations.absences.find()
    parts: Any = lifecycle.generations
    parts.save_from_memory = lambda: actor.beaten(2)
    async with asyncio.timeout(PATIENCE_S):
        await lifecycle._save()


async def test_the_last_events_of_ranks_that_are_done_have_more_time_than_those_of_ranks_that_are_killed(
    monkeypatch: MonkeyPatch,
) -> None:
    """On a busy machine a trainer's exit takes a while, and what its program printed last comes with it."""
    monkeypatch.setattr(life, "DRAIN_S", 0.0)
    spec, spool = GangSpec("shardyard-a-1", {}, 1), Spool(1 << 20)
    state = GangState(phase="ending", ranks=[RankState(0, done=True)])
    gang: Any = Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state)

    async def read() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        spool.add("log", {})

    gang.journal.settled = gang.placement.remove = nothing
    member = gang.members[0]
    member.handle, member.reader = SimpleNamespace(release=nothing), asyncio.create_task(read())
    await Lifecycle(gang)._end()
    assert [event["kind"] for event in spool.take(0)] == ["log", "state"]


@pytest.mark.parametrize("died", ["trainer", "actor"])
async def test_a_preemption_waits_for_the_cause_of_what_its_ranks_report(died: str) -> None:
    """Peers notice a rank's death before its own report has come."""
    echo = Failure("exception", 0, "RuntimeError: Connection closed by peer")
    lost = Failure("rank_lost", 1, "the trainer was killed by SIGKILL", "node-a")
    spec, spool = GangSpec("shardyard-a-1", {}, 2), Spool(1 << 20)
    ranks = [RankState(rank, exited=True) for rank in range(2)]
    state = GangState(phase="training", stopping="preempt", ranks=ranks, failures=[echo])
    gang: Any = Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state)
    gang.journal.settled = gang.placement.remove = nothing
    lifecycle, taken = Lifecycle(gang), PumpedEvent(1, exited=True, failure=lost)
    report = taken if died == "trainer" else RankLost("the rank's actor is lost")
    gang.phase = "ending"
    asyncio.get_running_loop().call_soon(lifecycle.generations._apply, gang.members[1], report)
    async with asyncio.timeout(PATIENCE_S):
        await lifecycle._end()
    incident, ended = spool.take(0)
    assert (incident["data"]["cause"], incident["data"]["rank"]) == ("rank_lost", 1)
    assert ended["data"]["state"] == "cancelled"


async def test_ranks_save_only_what_a_successor_knows_the_reason_of(monkeypatch: MonkeyPatch) -> None:
    """Else it finds ranks that have ended before their last step, and nothing that says why."""
    spec, spool = GangSpec("shardyard-a-1", {}, 1), Spool(1 << 20)
    state = GangState(phase="training", stopping="preempt", ranks=[RankState(0)])
    gang: Any = Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state)
    done: list[str] = []

    async def settled() -> None:
        done.append("written")

    async def save(_: object) -> None:
        done.append("ordered")
        gang.ended.set()

    monkeypatch.setattr(RankHandle, "save", save)
    gang.journal.settled, gang.members[0].handle = settled, RankHandle(None)
    async with asyncio.timeout(PATIENCE_S):
        await Lifecycle(gang)._save()
    assert done == ["written", "ordered"]


@pytest.mark.parametrize("stopping", ["preempt", None])
def test_the_incident_of_a_rank_that_was_gone_is_not_emitted_again_at_the_end(stopping: str | None) -> None:
    echo = Failure("exception", 0, "RuntimeError: Connection closed by peer")
    state = GangState(phase="ending", stopping=stopping, ranks=[RankState(0), RankState(1)], failures=[echo])
    lifecycle, _ = beaten_gang(state)
    lifecycle.gang.members[1].absence = Failure("rank_lost", 1, "the trainer was killed by SIGKILL")
    lifecycle._emit_end(success=False)
    assert [event["kind"] for event in lifecycle.gang.spool.take(0)] == ["state"]


@pytest.mark.parametrize("broken", [False, True], ids=["no-reason", "error"])
async def test_a_gang_always_ends_by_its_final_event(broken: bool) -> None:
    """Without one it were pulled, and its job ran, until its user ends it."""
    spec, spool = GangSpec("shardyard-a-1", {}, 1), Spool(1 << 20)
    state = GangState(phase="ending", ranks=[RankState(0, done=True, exited=True, stopped=True)])
    gang: Any = Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state)

    async def remove(*_: object) -> None:
        if broken:
            raise RuntimeError("no such group")

    gang.journal.settled, gang.placement.remove = nothing, remove
    async with asyncio.timeout(PATIENCE_S):
        await Lifecycle(gang).run()
    last = spool.take(0)[-1]
    assert (last["kind"], last["data"]["state"], last["data"]["reason"]) == ("state", "failed", "gang_error")
    assert last["data"]["message"] == (
        "RuntimeError: no such group" if broken else "its ranks ended, and nothing says why"
    )
    assert gang.phase == "ended"


@pytest.mark.parametrize(("phase", "reason"), [("placing", "start_failed"), ("repairing", "gang_error")])
async def test_a_gang_always_ends_by_its_final_event_which_says_whether_it_had_started(
    phase: Phase, reason: str
) -> None:
    spec, spool = GangSpec("shardyard-a-1", {}, 1), Spool(1 << 20)
    gang: Any = Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), GangState(phase=phase))
    lifecycle: Any = Lifecycle(gang)

    async def fails() -> Phase:
        raise RuntimeError("no such rank")

    gang.journal.settled = gang.placement.remove = nothing
    lifecycle._place = lifecycle._repair = fails
    async with asyncio.timeout(PATIENCE_S):
        await lifecycle.run()
    last = spool.take(0)[-1]["data"]
    assert (last["state"], last["reason"], last["message"]) == ("failed", reason, "RuntimeError: no such rank")


async def test_an_order_has_one_task_which_is_forgotten_when_it_was_reported() -> None:
    """A gang may get a hundred thousand orders in its life."""
    begun: list[str] = []
    tasks: dict[str, asyncio.Task[None]] = {}

    async def carry_out(name: str) -> None:
        begun.append(name)

    for pending in (["a"], ["a", "b"], ["b"]):
        begin_each(tasks, pending, carry_out)
        await asyncio.gather(*tasks.values())
    assert begun == ["a", "b"] and list(tasks) == ["b"]
