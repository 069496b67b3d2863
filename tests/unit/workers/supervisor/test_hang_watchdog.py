"""The hang behind an abort by NCCL's watchdog. Hangs of real ranks: tests/integration/workers/supervisor/test_hang_watchdog.py."""

import signal
from typing import Any

import pytest

from shardyard.workers.messages.rendezvous import Reservation
from shardyard.workers.supervisor.hang_watchdog import after_abort
from shardyard.workers.supervisor.policies.failures import exited
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member

LINE = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=58, OpType=ALLREDUCE)"
ABORT = exited(0, "node-a", -signal.SIGABRT, LINE)
LOADS = [{"thread": "MainThread", "frames": ["loader.py:7 in read"]}]
DONE = {"group": "world", "ranks": [0, 1, 2], "entered": 57, "nccl": True}
READS = {"state": "S", "phase": "step", "step": 7, "idle_s": 900.0, "stacks": LOADS, "collectives": [DONE]}
WAITS = READS | {"collectives": [DONE | {"entered": 58, "op": "all_reduce", "seq": 58, "since_s": 600.0}]}


class Actor:
    """An actor as far as an examination calls it."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.examine: Any = self
        self.facts = facts

    async def remote(self) -> dict[str, Any]:
        return self.facts


def gang(*facts: dict[str, Any] | None) -> list[Member]:
    """None: a rank that has exited."""
    members = []
    for rank, found in enumerate(facts):
        here = Reservation(rank, f"node-{rank}", "host", None, None, 1, 1, ())
        members.append(Member(rank, handle=RankHandle(Actor(found or {})), reservation=here, exited=found is None))
    return members


async def test_a_living_rank_for_which_the_others_waited_is_named() -> None:
    failure = await after_abort(ABORT, gang(None, WAITS, READS), 30.0)
    assert (failure.cause, failure.rank, failure.node) == ("hang", 2, "node-2") and not failure.secondary
    assert "loader.py:7 in read" in failure.message and LINE in failure.message
    assert failure.evidence["waiting"][0]["ranks"] == [1]


@pytest.mark.parametrize(
    "facts",
    [(None, None, None), (None, WAITS, WAITS), (None, WAITS, {"state": None}), (None, WAITS, READS | {"idle_s": 1.0})],
)
async def test_else_no_rank_is_named(facts: tuple[dict[str, Any] | None, ...]) -> None:
    """All have ended; those that live wait; one has just ended; one makes progress."""
    failure = await after_abort(ABORT, gang(*facts), 30.0)
    assert (failure.cause, failure.rank, failure.node) == ("hang", None, None) and not failure.secondary
    assert LINE in failure.message
