import asyncio
import contextlib
import json
import os
import signal
import socket
from asyncio.subprocess import PIPE, create_subprocess_exec
from typing import cast

import pytest
from harness.patience import PATIENCE_S
from harness.trainer_ends import trainer_process
from harness.virtual_time import VirtualLoop, run_virtually

from shardyard.workers.messages.event import to_json
from shardyard.workers.messages.rank_event import EXITED, FailedEvent
from shardyard.workers.process_stat import state_of
from shardyard.workers.rank import trainer_events
from shardyard.workers.rank.actor import Rank
from shardyard.workers.rank.secret_mask import SecretMask
from shardyard.workers.rank.trainer_events import TrainerEvents
from shardyard.workers.rank.trainer_process import TrainerProcess

NODE_KEY = "node-storage-key-123456"


@pytest.mark.parametrize(
    ("every_s", "wakes_per_s", "answers_per_s"),
    [(0.25, 6.0, 1.5), (0.02, 2.0, 1.8)],
    ids=["four steps a second", "fifty steps a second"],
)
def test_a_rank_wakes_rarely_for_its_steps_and_reports_each_in_time(
    every_s: float, wakes_per_s: float, answers_per_s: float
) -> None:
    seconds = 30.0

    async def train(loop: VirtualLoop) -> tuple[float, float, float]:
        """Wake-ups and answers per second, and the oldest step at its answer, in seconds."""
        with trainer_process() as (trainer, ends):
            rank = Rank("cpu")
            rank.trainer = trainer
            reading = loop.create_task(rank.events.read_messages(trainer))
            answers, oldest, trained = 0, 0.0, loop.create_task(_train(loop, ends.control, every_s, seconds))
            after = 0
            while not trained.done():
                events = await rank.pull(after, 1.0)
                after, answers = events[-1]["seq"], answers + 1
                oldest = max(oldest, loop.time() - min(event["ts"] for event in events))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            return (loop.wakes - trained.result()) / seconds, answers / seconds, oldest

    wakes, answers, oldest = run_virtually(train)
    assert wakes <= wakes_per_s and answers <= answers_per_s
    assert oldest <= 0.7


async def _train(loop: VirtualLoop, control: socket.socket, every_s: float, seconds: float) -> int:
    """Report steps as a trainer does; returns how often it woke."""
    for step in range(1, int(seconds / every_s) + 1):
        await asyncio.sleep(every_s)
        message = {"kind": "step", "data": {"step": step}, "ts": loop.time()}
        control.send(json.dumps(message).encode() + b"\n")
    return step


async def test_all_that_examine_a_trainer_at_the_same_time_have_its_status() -> None:
    """One without it would be the hang watchdog's proof that the trainer hangs."""
    with trainer_process() as (trainer, ends):
        rank = Rank("cpu")
        reading = asyncio.create_task(rank.events.read_messages(trainer))
        both = asyncio.gather(trainer.examine(), trainer.examine())
        await asyncio.sleep(0)
        for _ in range(2):
            ends.control.send(json.dumps({"kind": "status", "data": {"phase": "step"}, "ts": 1.0}).encode() + b"\n")
        assert await both == [{"phase": "step"}] * 2
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize(
    ("type_", "written", "message"),
    [
        (
            EXITED,
            b"first\nthe token is hf_0123456789\n",
            "it failed; the last line of its standard error: the token is ***",
        ),
        (EXITED, b"first\nno end of line", "it failed; the last line of its standard error: no end of line"),
        (EXITED, b"", "it failed"),
        ("KeyError", b"a traceback\n", "it failed"),
    ],
)
async def test_an_exit_status_comes_with_the_last_line_of_standard_error(
    type_: str, written: bytes, message: str
) -> None:
    """Which nothing has read yet. It is a line of the log all the same, before the event."""
    with trainer_process() as (trainer, ends):
        rank = Rank("cpu")
        rank.events.begin(0)
        rank.events.hide(["hf_0123456789"], trainer)
        ends.stderr.write(written)
        failed = FailedEvent(type=type_, message="it failed", traceback="")
        ends.control.send(json.dumps({"kind": "failed", "data": to_json(failed), "ts": 1.0}).encode() + b"\n")
        ends.control.close()
        await rank.events.read_messages(trainer)
        *logged, event = rank.events.spool.take(0)
        assert (event["kind"], event["data"]["message"]) == ("failed", message)
        if type_ == EXITED and written:
            assert logged[0]["data"]["lines"][0] == "first"


async def test_the_last_messages_of_a_trainer_are_read_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What outlives it may hold the pipes of its log, and is not waited for."""
    monkeypatch.setattr(trainer_events, "REST_S", 0.0)
    events = TrainerEvents()
    with trainer_process() as (trainer, ends):
        following = asyncio.create_task(events.follow(trainer, 1))
        ends.fork_server.send(b'{"exit": 1}\n')
        await asyncio.wait_for(trainer.gone.wait(), PATIENCE_S)
        failed = FailedEvent(type="KeyError", message="it failed", traceback="")
        for _ in range(2):
            await asyncio.sleep(0)
        ends.control.send(json.dumps({"kind": "failed", "data": to_json(failed), "ts": 1.0}).encode() + b"\n")
        for each in (ends.fork_server, ends.control):
            each.close()
        await asyncio.wait_for(following, PATIENCE_S)
    assert [event["kind"] for event in events.spool.take(0)] == ["failed", "exit"]


async def test_a_job_without_secrets_has_the_nodes_own_masked_in_what_it_prints_and_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The keys of the storage are in the environment of the Ray worker, which trainers inherit."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", NODE_KEY)
    rank = Rank("cpu")
    rank.events.begin(0)
    with trainer_process() as (trainer, ends):
        following = asyncio.create_task(rank.events.follow(trainer, 1))
        await asyncio.sleep(0)
        ends.stderr.write(f"before its run: {NODE_KEY}\n".encode())
        rank.events.hide(["of-the-job-itself"], trainer)
        ends.stdout.write(f"{dict(os.environ)} of-the-job-itself\n".encode())
        failed = FailedEvent(type="KeyError", message=NODE_KEY, traceback=f"it was {NODE_KEY}")
        ends.control.send(json.dumps({"kind": "failed", "data": to_json(failed), "ts": 1.0}).encode() + b"\n")
        ends.fork_server.send(b'{"exit": 1}\n')
        for each in (ends.stdout, ends.stderr, ends.fork_server, ends.control):
            each.close()
        await asyncio.wait_for(following, PATIENCE_S)
    text = json.dumps(rank.events.spool.take(0))
    assert NODE_KEY not in text and "of-the-job-itself" not in text
    assert all(part in text for part in ("before its run: ***", "'AWS_SECRET_ACCESS_KEY': '***'", "it was ***"))


def test_secrets_in_the_errors_of_ray_trains_workers_are_hidden() -> None:
    events = TrainerEvents()
    events.mask = SecretMask(['p4ss"word'])
    failure = {"worker": 0, "rank": 0, "message": 'no p4ss"word', "traceback": 'line\nwith p4ss"word ü'}
    data = {"failures": [failure], "message": ""}
    events._add(cast("TrainerProcess", None), {"kind": "ray_workers_failed", "data": data, "ts": 1.0})
    (sent,) = events.spool.take(0)
    (hidden,) = sent["data"]["failures"]
    assert (hidden["message"], hidden["traceback"]) == ("no ***", "line\nwith *** ü")


@pytest.mark.parametrize(
    ("replies", "unforked"), [([{"failed": "Cannot allocate memory"}], "Cannot allocate memory"), ([], None)]
)
async def test_the_exit_of_a_trainer_has_the_reason_why_it_was_not_forked(
    replies: list[dict[str, object]], unforked: str | None
) -> None:
    events = TrainerEvents()
    with trainer_process() as (trainer, ends):
        for reply in replies:
            ends.fork_server.sendall(json.dumps(reply).encode() + b"\n")
        for each in (ends.stdout, ends.stderr, ends.fork_server, ends.control):
            each.close()
        async with asyncio.timeout(PATIENCE_S):
            await events.follow(trainer, 2)
    [event] = events.spool.take(0)
    data = event["data"]
    assert (event["kind"], data["status"], data.get("unforked")) == ("exit", None, unforked)


async def test_what_a_trainer_has_started_ends_with_a_fork_server_that_was_killed() -> None:
    """The trainer dies with the server, and its program does not."""
    leader = await create_subprocess_exec("sh", "-c", "sleep 600 & echo $!; wait", stdout=PIPE, start_new_session=True)
    assert leader.stdout is not None
    program = int(await leader.stdout.readline())
    try:
        with trainer_process() as (trainer, ends):
            ends.fork_server.sendall(json.dumps({"pid": leader.pid}).encode() + b"\n")
            for each in (ends.stdout, ends.stderr, ends.fork_server, ends.control):
                each.close()
            async with asyncio.timeout(PATIENCE_S):
                await TrainerEvents().follow(trainer, 1)
                assert await leader.wait() == -signal.SIGKILL
                while state_of(program) not in (None, "Z", "X"):  # noqa: ASYNC110  # another process ends
                    await asyncio.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader.pid, signal.SIGKILL)
