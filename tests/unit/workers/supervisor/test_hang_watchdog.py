"""The hang behind an abort by NCCL's watchdog, and the second witness of a hang.

Hangs of real ranks: tests/integration/workers/supervisor/test_hang_watchdog.py.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.messages.nccl_report import LaunchCount, NcclRank, RasReport, UnequalLaunches
from shardyard.workers.messages.rendezvous import Reservation
from shardyard.workers.supervisor import hang_watchdog
from shardyard.workers.supervisor.hang_watchdog import after_abort, hang
from shardyard.workers.supervisor.policies.examination import Examination
from shardyard.workers.supervisor.policies.failures import Failure, exited
from shardyard.workers.supervisor.policies.hang import Progress
from shardyard.workers.supervisor.ranks.handles import ANSWER_S, RankHandle
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


IN_TOLIST = [{"thread": "MainThread", "frames": ["grad_clip.py:35 in sum"], "call": "tolist"}]
HOSTS = ["10.0.0.1"]
COUNTS = (
    LaunchCount(57, 1, (NcclRank(2, HOSTS[0], 102),)),
    LaunchCount(58, 2, (NcclRank(0, HOSTS[0], 100), NcclRank(1, HOSTS[0], 101))),
)
LAGS = RasReport("2.29.1", 1, (UnequalLaunches("0xa", "AllReduce", COUNTS),))
SEEN = "NCCL's RAS: AllReduce of communicator 0xa: 57 launched by rank 2, 58 launched by ranks 0, 1"


async def test_the_only_rank_that_lives_is_named_unless_its_device_may_wait_for_another_one() -> None:
    alone = READS | {"collectives": [], "stacks": IN_TOLIST, "pid": 100, "hosts": HOSTS}
    assert [(await after_abort(ABORT, gang(*others, alone), 30.0)).rank for others in ((), (None,))] == [0, None]


@pytest.mark.parametrize(
    ("read", "waits_s"), [("Thread (idle): MainThread\n    spin (a.py:1)", 0.0), ("", 7.0), (None, 7.0)]
)
async def test_the_stacks_of_a_trainer_that_does_not_answer_are_in_the_incident(
    monkeypatch: pytest.MonkeyPatch, read: str | None, waits_s: float
) -> None:
    """If they cannot be read, it writes its own to its log meanwhile. None: its actor does not answer in time."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def read_stacks() -> str:
        if read is None:
            raise TimeoutError
        return read

    monkeypatch.setattr(hang_watchdog, "WRITTEN_S", 7.0)
    members: Any = gang({"state": "R"}, READS)
    members[0].handle.actor.read_stacks = SimpleNamespace(remote=read_stacks)
    found = [Examination.of(0, {"state": "R"}), Examination.of(1, READS)]
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        found, written = await hang_watchdog._with_stacks(found, members)
    assert waited == [waits_s] * bool(waits_s) and written == bool(waits_s)
    failure = hang_watchdog._failure(found, members, 30.0, None)
    (text,) = [one["stack"] for one in failure.evidence["stacks"] if one["ranks"] == [0]]
    assert text == "no answer (process state R)" + (f"\n{read}" if read else "")


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_gang_that_goes_on_while_its_stacks_are_read_does_not_hang(goes_on: bool) -> None:
    members: Any = gang({"state": "R"})
    progress, times = Progress(0.05), 0

    async def read_stacks() -> str:
        nonlocal times
        times += 1
        if goes_on and times < 3:
            progress.began()
        return "Thread (idle): MainThread"

    members[0].handle.actor.read_stacks = SimpleNamespace(remote=read_stacks)
    spec = GangSpec("shardyard-a-1", {}, 1)
    async with asyncio.timeout(PATIENCE_S):
        failure = await hang(spec, members, progress, lambda: False)
    assert failure.cause == "hang" and times == (3 if goes_on else 1)


Answer = Callable[[], Coroutine[Any, Any, RasReport | None]]


class Asked:
    """An actor that can be asked for the report of NCCL's RAS."""

    def __init__(self, facts: dict[str, Any], answer: Answer) -> None:
        self.examine: Any = Actor(facts)
        self.ask_nccl: Any = self
        self.remote = answer


async def no_answer() -> RasReport | None:
    return None


async def never() -> RasReport | None:
    await asyncio.Event().wait()
    return None


async def broken() -> RasReport | None:
    raise RuntimeError("the actor died")


async def lags() -> RasReport | None:
    return LAGS


def hung_gang(*answers: Answer) -> list[Member]:
    """Three ranks on nodes of their own, without flight recorders; rank 2 reads a file that does not come."""
    members = []
    for rank, answer in enumerate(answers):
        stacks = LOADS if rank == 2 else IN_TOLIST
        facts = READS | {"collectives": [], "stacks": stacks, "pid": 100 + rank, "hosts": HOSTS}
        here = Reservation(rank, f"node-{rank}", HOSTS[0], None, None, 1, 1, ())
        members.append(Member(rank, handle=RankHandle(Asked(facts, answer)), reservation=here))
    return members


async def hangs(members: list[Member], device: str = "cuda") -> Failure:
    spec = GangSpec("gang", {}, len(members), device=device, hang_timeout_s=0.3, timeout_s=0.3)
    return await hang(spec, members, Progress(0.3), lambda: False)


async def test_a_rank_that_is_done_is_no_progress() -> None:
    """It waits for its release; its program, which has ended, gives no status but a new one each time."""
    waiting = hung_gang(no_answer, no_answer)
    ended = Member(2, handle=RankHandle(Asked({"state": "S", "phase": "program", "idle_s": 0.0}, no_answer)))
    ended.done = True
    failure = await asyncio.wait_for(hangs([*waiting, ended]), PATIENCE_S)
    assert failure.cause == "hang"


async def test_the_second_witness_names_a_rank_where_recorders_are_missing_and_stands_in_the_evidence() -> None:
    failure = await hangs(hung_gang(no_answer, broken, lags))
    assert (failure.cause, failure.rank, failure.node) == ("hang", 2, "node-2")
    assert "loader.py:7 in read" in failure.message and SEEN in failure.message
    assert failure.evidence["nccl_ras"] == [SEEN]


@pytest.mark.parametrize("answer", [no_answer, broken, never])
async def test_without_an_answer_the_verdict_is_as_ever_and_waits_for_none(answer: Answer) -> None:
    async with asyncio.timeout(ANSWER_S / 2):
        failure = await hangs(hung_gang(answer, answer, answer))
    assert (failure.cause, failure.rank) == ("hang", None) and "nccl_ras" not in failure.evidence


async def test_a_rank_that_is_gone_is_not_named_again() -> None:
    members = gang(WAITS, WAITS, READS)
    assert (await hangs(members, "cpu")).rank == 2
    members[2].absence = Failure("hang", 2, "it reads a file that does not come")
    failure = await hangs(members, "cpu")
    assert failure.rank != 2 and {rank for one in failure.evidence["stacks"] for rank in one["ranks"]} == {0, 1}


async def test_on_gloo_it_is_not_asked() -> None:
    asked = []

    async def ask() -> RasReport | None:
        asked.append(True)
        return LAGS

    failure = await hangs(hung_gang(ask, ask, ask), device="cpu")
    assert (failure.rank, asked) == (None, [])
