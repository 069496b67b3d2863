import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S
from harness.ras_server import HERE, communicator, process, ras_server, status
from harness.trainer_ends import trainer_process

from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.rank import actor, nccl_ras
from shardyard.workers.rank.actor import Rank
from shardyard.workers.snapshot.replication import Stale
from shardyard.workers.supervisor.policies.examination import Examination
from shardyard.workers.supervisor.policies.hang import hung
from shardyard.workers.supervisor.ranks import handles


async def test_a_trainer_that_its_fork_server_is_still_to_fork_is_no_hang() -> None:
    """On a node that is new to a gang the import may take longer than `policy.hang_timeout_s`."""
    with trainer_process() as (trainer, _):
        rank = Rank("cpu")
        rank.trainer = trainer
        found = Examination.of(0, await rank.examine())
        assert not hung([found], quick_s=0.0, slow_s=600.0)
        assert hung([found], quick_s=0.0, slow_s=0.0), "not for ever"
        trainer.pid = os.getpid()  # it lives and says nothing
        assert hung([Examination.of(0, await rank.examine())], quick_s=600.0, slow_s=600.0)


async def test_an_actor_asks_about_the_job_of_its_own_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names its process as NCCL does: by its id, and an address of its node. The job may set RAS's own address."""
    monkeypatch.setenv("NCCL_RAS_ADDR", "localhost:1")
    with trainer_process() as (trainer, _):
        rank = Rank("cuda")
        rank.trainer = trainer
        assert await rank.ask_nccl() is None, "it is still to be forked"
        trainer.pid = os.getpid()
        trainer.gone.set()  # it answers nothing
        facts = await rank.examine()
        assert facts["pid"] == os.getpid() and HERE in facts["hosts"]
        async with ras_server(
            status(communicator("0xa", process(0, 1))), status(communicator("0xb", process(0, os.getpid())))
        ) as ras:
            rank.env = ras.env
            monkeypatch.setattr(nccl_ras, "GREETING_S", PATIENCE_S)  # this process may wait for a core
            monkeypatch.setattr(nccl_ras.ask, "__defaults__", (PATIENCE_S,))
            report = await rank.ask_nccl()
        assert report is not None and report.communicators == 1 and len(ras.received) == 2


async def test_what_is_pulled_has_the_time_of_the_answer() -> None:
    """By it the supervisor knows by how much this node's clock differs."""
    rank = Rank("cpu")
    kept = rank.events.spool.add("log", {})
    began = time.time()
    [event] = await rank.pull(0, 0.0)
    assert began <= event["now"] <= time.time() and event == {**kept, "now": event["now"]}
    assert "now" not in kept, "the next answer has another time"


async def test_messages_reach_a_trainer_in_their_order_and_no_trainer_is_no_error() -> None:
    rank = Rank("cpu")
    await rank.send({"stop": "save"})
    with trainer_process() as (trainer, ends):
        rank.trainer = trainer
        await rank.send({"stop": "save"})
        await rank.send({"release": True})
        with ends.control.makefile("rb") as lines:
            assert [json.loads(lines.readline()) for _ in range(2)] == [{"stop": "save"}, {"release": True}]


@pytest.mark.parametrize("has_ended", [True, False])
async def test_an_end_by_force_is_marked_unless_the_trainer_had_ended(has_ended: bool) -> None:
    """What killed it before, such as a lack of memory, is a failure."""
    rank = Rank("cpu")
    await rank.stop(0.0)
    with trainer_process() as (trainer, ends):
        rank.trainer = trainer
        if has_ended:
            trainer.gone.set()
        await rank.stop(0.0)
        trainer.gone.set()
        await rank.stop(0.0)  # once more, as a supervisor that was started again may
        assert trainer.end_ordered != has_ended and ends.fork_server.recv(8) == bytes([signal.SIGKILL] * 2)


async def test_a_trainer_that_reads_late_gets_each_message_whole() -> None:
    """A socket takes about 210 KB. A run may have more, and a trainer reads only after its imports."""
    rank, run, coords = Rank("cpu"), {"text": "x" * (1 << 20)}, {"generation": 1}
    with trainer_process() as (trainer, ends):
        rank.trainer = trainer
        async with asyncio.timeout(PATIENCE_S):
            assert await rank.start(run, coords), "it does not wait for the trainer"
            assert await rank.start(run, coords), "and sends it once"
            stopping = asyncio.create_task(rank.send({"stop": "save"}))
            given_up = asyncio.create_task(rank.send({"lost": 1}))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            assert not stopping.done()
            with ends.control.makefile("rb") as lines:
                received = [json.loads(await asyncio.to_thread(lines.readline)) for _ in range(3)]
            await stopping
    assert received[0]["run"] == run and received[1:] == [{"stop": "save"}, {"lost": 1}]


async def test_a_start_of_an_earlier_generation_changes_nothing() -> None:
    """The node of its supervisor stood still, and a successor has opened the next generation meanwhile."""
    rank = Rank("cpu")
    with trainer_process() as (trainer, ends):
        rank.trainer, rank.store.generation = trainer, 3
        with pytest.raises(Stale):
            await rank.start({"of": "the predecessor"}, {"generation": 2})
        async with asyncio.timeout(PATIENCE_S):
            assert not await rank.start({"of": "the successor"}, {"generation": 3}, secrets=None)
            assert await rank.start({"of": "the successor"}, {"generation": 3})
            with pytest.raises(Stale):
                await rank.start({"of": "the predecessor"}, {"generation": 2})
            with ends.control.makefile("rb") as lines:
                received = json.loads(await asyncio.to_thread(lines.readline))
    assert received["run"] == {"of": "the successor"} and rank.started == 3


async def test_what_a_trainer_has_not_read_ends_with_it() -> None:
    with trainer_process() as (trainer, _):
        long, last = (trainer.post({"text": "x" * size}) for size in (1 << 20, 1))
        await asyncio.sleep(0)
        trainer.close()
        await asyncio.wait([long, last], timeout=PATIENCE_S)
        assert long.cancelled() and last.cancelled()


async def test_a_trace_is_for_a_trainer_that_has_its_run() -> None:
    """One that waits for its run forgets all other messages."""
    rank = Rank("cpu")
    with pytest.raises(RuntimeError, match="has not received its run"):
        await rank.trace({"id": "t"})
    with trainer_process() as (trainer, ends):
        rank.trainer, rank.store.generation = trainer, 2
        for rank.started in (0, 1):
            with pytest.raises(RuntimeError):
                await rank.trace({"id": "t"})
        rank.started = 2
        await rank.trace({"id": "t"})
        with ends.control.makefile("rb") as lines:
            assert json.loads(lines.readline()) == {"trace": {"id": "t"}}


async def test_what_a_trainer_records_begins_once_it_has_its_run(tmp_path: Path) -> None:
    """As with a trace; its supervisor repeats the order."""
    order = Profile("profile-1", "operators", 0, 1, str(tmp_path), 1 << 20).to_json()
    rank = Rank("cpu")
    with trainer_process() as (trainer, ends):
        trainer.pid, rank.trainer, rank.store.generation, rank.started = os.getpid(), trainer, 2, 1
        async with asyncio.timeout(PATIENCE_S):
            assert await rank.act("profile", order) is None
        rank.started = 2
        taken = asyncio.create_task(rank.act("profile", order))
        with ends.control.makefile("rb") as lines:
            assert "profile" in json.loads(await asyncio.to_thread(lines.readline))
        trainer.gone.set()
        taken.cancel()


def test_the_actor_has_every_method_that_a_supervisor_or_another_rank_calls() -> None:
    """Ray finds a method by its name when it is called."""
    callers = (handles, actor)
    called = {name for one in callers for name in re.findall(r"(\w+)\.remote\b", Path(one.__file__ or "").read_text())}
    assert {"pull", "send", "act", "write_out"} <= called
    assert {name for name in called if not hasattr(Rank, name)} == set()
