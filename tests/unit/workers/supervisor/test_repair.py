"""What a rank's events mean for its generation. Repairs with real ranks: tests/integration/workers/supervisor/test_repair.py."""

from collections.abc import Iterable

import pytest

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.messages.rendezvous import Reservation
from shardyard.workers.supervisor.event_pump import EventTaken, RankLost
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.gang_state import GangState, Phase, RankState
from shardyard.workers.supervisor.journal.journal import Journal
from shardyard.workers.supervisor.policies.failures import Failure
from shardyard.workers.supervisor.repair import Generations, choose_root_cause

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


def apply(gang: Gang, rank: int, taken: Iterable[EventTaken | RankLost]) -> None:
    for one in taken:
        Generations(gang)._apply(gang.members[rank], one)


def test_a_generation_ends_when_all_ranks_are_done() -> None:
    gang = training()
    apply(gang, 0, [EventTaken(5, step=3), EventTaken(6, done=True)])
    assert (gang.members[0].pulled, gang.members[0].step) == (6, 3) and not gang.ended.is_set()
    apply(gang, 1, [EventTaken(4, done=True)])
    assert gang.ended.is_set() and not gang.failures and gang.all_done
    apply(gang, 1, [EventTaken(5, exited=True)])
    assert gang.members[1].done and gang.members[1].exited, "what an earlier event said remains"


def test_a_failure_ends_the_generation() -> None:
    gang = training()
    apply(gang, 1, [EventTaken(1, exited=True, failure=LOST)])
    assert gang.ended.is_set() and gang.failures == [LOST] and not gang.members[1].lost


@pytest.mark.parametrize(("phase", "failures"), [("training", 1), ("repairing", 1), ("ending", 0)])
def test_an_actor_that_is_gone_is_a_failure_unless_the_gang_ends(phase: Phase, failures: int) -> None:
    gang = training(phase)
    apply(gang, 1, [RankLost("the rank's actor is lost")])
    assert gang.members[1].lost and gang.members[1].exited and len(gang.failures) == failures


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


async def test_an_incident_is_emitted_before_the_state_that_it_brings() -> None:
    gang = training(max_repairs=1)
    gang.failures = [Failure("hang", None, "no progress")]
    assert await Generations(gang).decide()
    assert [event["kind"] for event in gang.spool.take(0)] == ["incident", "state"]
    assert gang.repair is not None and gang.repair.cause == "hang"
