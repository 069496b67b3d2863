"""What a rank's events mean for its generation. Repairs with real ranks: tests/integration/workers/supervisor/test_repair.py."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.messages.rendezvous import Reservation
from shardyard.workers.supervisor import repair
from shardyard.workers.supervisor.event_pump import PumpedEvent, RankLost
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.gang_state import GangState, Phase, RankState, Repair
from shardyard.workers.supervisor.journal.journal import Journal
from shardyard.workers.supervisor.lifecycle import Lifecycle
from shardyard.workers.supervisor.policies.failures import Failure
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.repair import Generations, _restore_step, choose_root_cause, drain_for_repair

LOST = Failure("rank_lost", 1, "the trainer was killed by SIGKILL", "node-a")
ECHO = Failure("exception", 0, "RuntimeError: Connection closed by peer")


def training(phase: Phase = "training", max_repairs: int = 0) -> Gang:
    """Two ranks on one node."""
    spool = Spool(1 << 20)
    ranks = [RankState(n, reservation=Reservation(n, "node-a", "host", None, None, 1, 1, ())) for n in (0, 1)]
    spec = GangSpec("shardyard-a-1", {}, 2, max_repairs=max_repairs)
    return Gang(
        spec,
        Journal(spec.name, spool, bytes),
        spool,
        GangSecrets(False),
        GangState(phase=phase, generation=1, ranks=ranks),
    )


def apply(gang: Gang, rank: int, taken: Iterable[PumpedEvent | RankLost]) -> None:
    for one in taken:
        Generations(gang)._apply(gang.members[rank], one)


def test_a_generation_ends_when_all_ranks_are_done() -> None:
    gang = training()
    apply(gang, 0, [PumpedEvent(5, step=3), PumpedEvent(6, done=True)])
    assert (gang.members[0].pulled, gang.members[0].step) == (6, 3) and not gang.ended.is_set()
    apply(gang, 1, [PumpedEvent(4, done=True)])
    assert gang.ended.is_set() and not gang.failures and gang.all_done
    apply(gang, 1, [PumpedEvent(5, exited=True)])
    assert gang.members[1].done and gang.members[1].exited, "what an earlier event said remains"


async def test_a_cancel_does_not_wait_for_what_ranks_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "TRAINER_END_S", 0.01)
    gang = training("repairing")

    async def report(member: Member) -> None:
        while True:
            apply(gang, member.rank, [PumpedEvent(member.pulled + 1)])
            if member.pulled == 100:
                Lifecycle(gang).stop("cancel")
            await asyncio.sleep(0)

    gang.members[0].reader = asyncio.create_task(report(gang.members[0]))
    late = await asyncio.wait_for(drain_for_repair(gang), PATIENCE_S)
    assert late == [gang.members[0]] and late[0].news >= 100
    apply(gang, 1, [PumpedEvent(1, beside=True)])
    assert (gang.members[1].pulled, gang.members[1].news) == (1, 0)


def test_a_failure_ends_the_generation() -> None:
    gang = training()
    apply(gang, 1, [PumpedEvent(1, exited=True, failure=LOST)])
    assert gang.ended.is_set() and gang.failures == [LOST] and not gang.members[1].lost


@pytest.mark.parametrize(("kind", "data"), [("step", {"step": 1, "step_s": 0.1}), ("program_started", {"pid": 7})])
def test_spares_are_made_while_the_first_rank_trains_or_runs_a_program(kind: str, data: dict[str, Any]) -> None:
    gang = training()
    for rank, expected in ((1, False), (0, True)):
        event: Any = {"seq": 1, "ts": 1.0, "kind": kind, "data": dict(data)}
        apply(gang, rank, [gang.pump._handlers[kind](gang.members, gang.members[rank], event)])
        assert gang.spares._training.is_set() == expected
    gang.merger.emit_state("recovering", "rank_lost", "")
    apply(gang, 1, [PumpedEvent(2)])
    assert not gang.spares._training.is_set()


@pytest.mark.parametrize(("phase", "failures"), [("training", 1), ("repairing", 1), ("ending", 0)])
def test_an_actor_that_is_gone_is_a_failure_unless_the_gang_ends(phase: Phase, failures: int) -> None:
    gang = training(phase)
    apply(gang, 1, [RankLost("the rank's actor is lost")])
    assert gang.members[1].lost and gang.members[1].exited and len(gang.failures) == failures


@pytest.mark.parametrize(("how", "failures"), [("begins to end", 1), ("kills", 0), ("is done", 0)])
async def test_an_actor_that_dies_is_a_failure_until_its_gang_ends_the_others(how: str, failures: int) -> None:
    gang = training()
    generations, gang.phase = Generations(gang), "ending"
    gang.members[0].done = gang.members[1].done = how == "is done"
    if how == "kills":
        await generations.kill(PATIENCE_S)
    generations._apply(gang.members[1], RankLost("the rank's actor is lost"))
    assert len(gang.failures) == failures


@pytest.mark.parametrize("phase", ["training", "ending"])
async def test_connections_that_a_gang_breaks_at_its_end_are_no_causes(phase: Phase) -> None:
    """The others lose their own when it kills a trainer. `ending`: a predecessor may have."""
    gang: Any = training(phase)
    gang.failures = [ECHO]
    generations = Generations(gang)
    echo = PumpedEvent(1, failed=True, failure=Failure("exception", 1, OWN_REFUSED, "node-a", OWN_FRAME + OWN_REFUSED))

    async def stop(*_: float) -> None:
        generations._apply(gang.members[1], echo)

    for member in gang.members:
        member.handle = SimpleNamespace(stop=stop)
    if phase == "training":
        await generations.kill(PATIENCE_S)
    else:
        await stop()
    assert gang.failures == [ECHO] and gang.members[1].failed
    own = Failure("exception", 1, "ValueError: no", "node-a")
    generations._apply(gang.members[1], PumpedEvent(2, failed=True, failure=own))
    assert gang.root_cause == own, "what it reports late of its own is one"


async def test_a_better_cause_is_waited_for() -> None:
    gang = training()
    gang.failures = [ECHO]
    assert await choose_root_cause(gang) == ECHO, "no other rank has reported one"
    gang.failures = [ECHO, LOST]
    assert await choose_root_cause(gang) == LOST


async def test_a_repair_beyond_the_budget_is_refused_without_an_incident() -> None:
    gang = training()
    gang.failures = [Failure("exception", 0, "ValueError: no")]
    assert not await Generations(gang).decide() and not gang.spool.take(0)


OWN_REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"
OWN_FRAME = 'Traceback (most recent call last):\n  File "train.py", line 3, in read\n'


@pytest.mark.parametrize("dead", [True, False])
async def test_a_connection_of_the_users_own_that_fails_may_be_to_a_node_that_died(
    dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray notices a dead node late, so that the nodes of all ranks are asked. If all live, the exception ends the job."""
    gang, asked = training(max_repairs=1), list[set[int]]()
    gang.failures = [Failure("exception", 1, OWN_REFUSED, "node-a", OWN_FRAME + OWN_REFUSED)]

    async def lost_nodes(_: Any, accused: set[int]) -> list[Failure]:
        asked.append(set(accused))
        return [Failure("node_lost", None, "node node-a took rank 0 along", "node-a")] if dead else []

    monkeypatch.setattr(repair, "lost_nodes", lost_nodes)
    monkeypatch.setattr(repair, "ROOT_CAUSE_S", 0.0)
    assert await Generations(gang).decide() == dead
    assert asked == [{0, 1}] and (gang.repair is not None and gang.repair.cause == "node_lost") == dead
    assert gang.root_cause.cause == ("node_lost" if dead else "exception")


@pytest.mark.parametrize("dead", [True, False])
async def test_a_lost_peer_may_be_on_a_node_that_has_not_been_missed_yet(
    dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that lives reports it first. Without the node the repair would place a rank there again, and fail."""
    gang, asked = training(max_repairs=1), list[set[int]]()
    gang.failures = [Failure("exception", 1, "RuntimeError: Connection closed by peer", "node-a")]

    async def lost_nodes(_: Any, accused: set[int]) -> list[Failure]:
        asked.append(set(accused))
        return [Failure("node_lost", None, "node node-b took rank 0 along", "node-b")] if dead else []

    monkeypatch.setattr(repair, "lost_nodes", lost_nodes)
    monkeypatch.setattr(repair, "ROOT_CAUSE_S", 0.0)
    assert await Generations(gang).decide()
    assert asked == [{0, 1}]
    assert gang.repair is not None and gang.repair.cause == ("node_lost" if dead else "exception")


async def test_where_ranks_on_several_nodes_were_silent_each_node_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    gang, asked = training(max_repairs=1), list[set[int]]()
    gang.failures = [Failure("rank_lost", None, "the repair failed: 2 ranks on 2 nodes have not answered")]

    async def lost_nodes(_: Any, accused: set[int]) -> list[Failure]:
        asked.append(set(accused))
        return [Failure("node_lost", None, "node node-b took rank 1 along", "node-b")]

    monkeypatch.setattr(repair, "lost_nodes", lost_nodes)
    assert await Generations(gang).decide()
    assert asked == [{0, 1}] and gang.repair is not None and gang.repair.cause == "node_lost"


async def test_nodes_that_die_together_are_an_incident_each_and_one_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = training(max_repairs=1)
    gang.failures = [LOST]

    async def lost_nodes(_: Any, accused: set[int]) -> list[Failure]:
        return [Failure("node_lost", None, "", f"node-{name}") for name in "abc"]

    monkeypatch.setattr(repair, "lost_nodes", lost_nodes)
    assert await Generations(gang).decide()
    emitted = [(event["kind"], event["data"].get("node")) for event in gang.spool.take(0)]
    assert emitted == [("incident", "node-b"), ("incident", "node-c"), ("incident", "node-a"), ("state", None)]
    assert gang.root_cause.node == "node-a" and gang.budget.done == 1
    assert all(member.lost for member in gang.members)


async def test_an_incident_is_emitted_before_the_state_that_it_brings() -> None:
    gang = training(max_repairs=1)
    gang.failures = [Failure("hang", None, "no progress")]
    assert await Generations(gang).decide()
    assert [event["kind"] for event in gang.spool.take(0)] == ["incident", "state"]
    assert gang.repair is not None and gang.repair.cause == "hang"


@pytest.mark.parametrize(
    ("held", "distrusted", "restored", "left"),
    [
        pytest.param([[4, 6], [4]], False, 4, [[4], [4]], id="one was killed while it copied"),
        pytest.param([[4, 5], [6]], False, None, [[], []], id="none in common"),
        pytest.param([[4, 5], [4, 5]], True, None, [[], []], id="not trusted"),
    ],
)
async def test_no_snapshot_is_left_that_is_newer_than_the_restored_step(
    held: list[list[int]], distrusted: bool, restored: int | None, left: list[list[int]]
) -> None:
    """The next snapshot is written over the older one, which must not be the only step in common."""
    gang = training()
    gang.distrusted = distrusted
    for member, steps in zip(gang.members, held, strict=True):

        async def answer(steps: list[int] = steps) -> list[int]:
            return steps

        async def forget(after: int, steps: list[int] = steps) -> None:
            steps[:] = [step for step in steps if step <= after]

        member.handle = cast("Any", SimpleNamespace(snapshots=SimpleNamespace(steps=answer, forget=forget)))
    assert await _restore_step(gang) == restored
    assert held == left and not gang.distrusted


async def test_a_rank_that_fails_in_a_repair_is_named_with_its_node() -> None:
    gang = training("repairing", max_repairs=1)
    gang.repair, parts = Repair("rank_lost", 1, began=0.0), cast("Any", gang)
    parts.budget, generations = SimpleNamespace(backoff_s=0.0), Generations(gang)

    async def nothing(*_: object) -> None:
        pass

    async def late(*_: object) -> None:
        raise TimeoutError("no answer within 120 s")

    parts.journal.settled, cast("Any", generations)._end = nothing, nothing
    for member, reserve in zip(gang.members, (nothing, late), strict=True):
        member.handle = cast("Any", SimpleNamespace(reserve=reserve))
    async with asyncio.timeout(PATIENCE_S):
        assert not await generations.repair()
    message = "the repair failed: TimeoutError: no answer within 120 s"
    assert gang.failures == [Failure("rank_lost", 1, message, "node-a")]


class Served:
    """Three workers with clocks of their own, and a server, which have trained five steps. `calls`: those to the ranks' actors."""

    def __init__(self, max_repairs: int = 3, trained: bool = True, state: GangState | None = None) -> None:
        spool = Spool(1 << 20)
        ranks = [RankState(n, reservation=Reservation(n, "node-a", "host", None, None, 1, 1, ())) for n in range(4)]
        spec = GangSpec("shardyard-a-1", {}, 4, max_repairs=max_repairs, own_clocks=3)
        begun = state or GangState(phase="training", generation=1, ranks=ranks)
        self.gang = Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), begun)
        self.generations, self.calls = Generations(self.gang), list[tuple[int, str, int]]()
        self.gang.journal.settled = self.settled  # type: ignore[method-assign]
        for member in self.gang.members:
            handle: Any = SimpleNamespace(lose=self.called(member.rank, "lose"), stop=self.called(member.rank, "stop"))
            member.handle, member.trained = handle, trained

    async def settled(self) -> None:
        self.calls.append(WRITTEN)

    def called(self, to: int, name: str) -> Any:
        async def call(about: float, *_: float) -> None:
            self.calls.append((to, name, int(about)))

        return call

    def apply(self, rank: int, *taken: PumpedEvent | RankLost) -> None:
        for one in taken:
            self.generations._apply(self.gang.members[rank], one)

    def emitted(self) -> list[tuple[str, Any]]:
        return [(one["kind"], one["data"].get("rank")) for one in self.gang.spool.take(0)]


GONE = PumpedEvent(1, exited=True, failure=LOST)
#: The journal is written.
WRITTEN = (-1, "settled", 0)


async def called() -> None:
    """Let the tasks make their calls, which answer at once."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_others_train_on_without_a_worker_and_end_together_for_its_return() -> None:
    served = Served()
    gang = served.gang
    for rank in (0, 2, 3):
        gang.merger.step(rank, {"seq": 1, "ts": 1.0, "kind": "step", "data": {"step": 6, "step_s": 0.1, "loss": 2.0}})
    served.apply(1, GONE)
    await called()
    assert not gang.ended.is_set() and gang.failures == [] and gang.phase == "training"
    assert served.calls == [WRITTEN, (3, "lose", 1)], "only the servers wait for it"
    assert ("incident", 1) in served.emitted() and gang.merger.newest_step == 6, "its steps are not waited for"
    assert "2 workers train on" in gang.absences[0].message
    for rank in (0, 2):
        served.apply(rank, PumpedEvent(9, stopped=True), PumpedEvent(10, done=True))
    assert not gang.ended.is_set()
    served.apply(3, PumpedEvent(10, done=True))
    assert gang.ended.is_set() and gang.awaits_return and not gang.all_done
    before = served.emitted()
    assert await served.generations.decide()
    assert served.emitted()[len(before) :] == [("state", None)], "its incident is known"
    assert gang.repair is not None and (gang.repair.cause, gang.repair.rank) == ("rank_lost", 1)
    served.generations.stop_watching()


async def test_a_worker_that_hangs_is_ended_and_its_exit_is_no_second_incident() -> None:
    served = Served()
    served.generations.fail(Failure("hang", 2, "no progress", "node-a"))
    await called()
    assert served.calls == [WRITTEN, (3, "lose", 2), (2, "stop", 0)], "one that has a successor orders nothing"
    served.apply(2, PumpedEvent(1, exited=True, failure=Failure("rank_lost", 2, "killed")))
    assert served.emitted() == [("incident", 2)] and not served.gang.ended.is_set()
    served.generations.stop_watching()


@pytest.mark.parametrize(
    ("failure", "how"),
    [
        (Failure("rank_lost", 0, "killed"), {}),
        (Failure("rank_lost", 3, "killed"), {}),
        (Failure("exception", 1, "ValueError: no"), {}),
        (LOST, {"max_repairs": 0}),
        (LOST, {"trained": False}),
    ],
    ids=["first", "server", "exception", "no-repair-left", "groups-not-formed"],
)
async def test_other_ends_are_those_of_the_generation(failure: Failure, how: dict[str, Any]) -> None:
    served = Served(**how)
    served.generations.fail(failure)
    assert served.gang.ended.is_set() and served.gang.failures == [failure] and served.emitted() == []


@pytest.mark.parametrize("restarted", [False, True])
def test_without_snapshots_a_lost_worker_ends_the_generation(restarted: bool) -> None:
    """`restarted`: the incident was reported to a predecessor."""
    served = Served()
    data = {"cause": "snapshots_off", "message": "no room", "step": 1}
    event: Any = {"seq": 1, "ts": 1.0, "kind": "incident", "data": data}
    served.apply(0, served.gang.pump._handlers["incident"](served.gang.members, served.gang.members[0], event))
    assert not served.gang.ended.is_set()
    if restarted:
        served = Served(state=served.gang.to_state())
    served.apply(1, GONE)
    assert served.gang.ended.is_set() and served.gang.failures == [LOST] and not served.gang.absences


async def test_the_next_generation_may_have_snapshots_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = training()
    gang.snapshots_off, generations = True, Generations(gang)

    async def stopped(*_: object) -> None:
        return None

    monkeypatch.setattr(gang.journal, "settled", stopped)
    monkeypatch.setattr(generations, "_reserve", stopped)
    assert not await generations.open() and not gang.snapshots_off


@pytest.mark.parametrize("first", [[], [Failure("rank_lost", 0, "killed")]], ids=["alone", "after its node's end"])
def test_memory_that_a_check_found_wrong_is_not_used_whatever_the_root_cause_is(first: list[Failure]) -> None:
    served = Served()
    for failure in (*first, Failure("replica_mismatch", 1, "differs", "node-a", "Traceback")):
        assert not served.gang.distrusted
        served.generations.fail(failure)
    assert served.gang.distrusted


async def test_when_the_others_fail_since_a_worker_was_gone_it_is_the_cause() -> None:
    served = Served()
    served.apply(1, GONE)
    served.generations.fail(ECHO)
    assert served.gang.ended.is_set() and await choose_root_cause(served.gang) == served.gang.absences[0]
    server = Failure("rank_lost", 3, "killed")
    served.generations.fail(server)
    assert await choose_root_cause(served.gang) == server, "unless another cause is reported"
    served.generations.stop_watching()


async def test_a_successor_finds_who_was_gone() -> None:
    served = Served()
    served.gang.members[1].exited = True
    served.generations.absences.find()
    assert [failure.rank for failure in served.gang.absences] == [1]
    for rank in (0, 2, 3):
        served.gang.members[rank].done = True
    assert served.gang.awaits_return
    served.gang.members[1].renew()
    assert not served.gang.absences


@pytest.mark.parametrize("last", [True, False])
async def test_a_successor_finds_whom_its_predecessor_ended_because_it_hung(last: bool) -> None:
    """The end is reported to the successor, which has seen no step of that rank. `last`: the others are done by then."""
    served = Served(trained=False)
    for rank in (0, 1, 3) if last else ():
        served.apply(rank, PumpedEvent(9, done=True))
    event: Any = {"seq": 1, "ts": 1.0, "kind": "exit", "data": {"status": -9, "generation": 1, "ordered": True}}
    served.apply(2, served.gang.pump._handlers["exit"](served.gang.members, served.gang.members[2], event))
    await called()
    assert served.calls == [WRITTEN, (3, "lose", 2)] and served.emitted() == [], "its incident is known"
    assert len(served.gang.absences) == 1 and not served.gang.failures and served.gang.ended.is_set() == last
