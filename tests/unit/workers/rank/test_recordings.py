"""A recording is ordered of the trainer, and its answer is awaited no longer than the trainer lives, nor than patience lasts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.rank import recordings
from shardyard.workers.rank.recordings import NotRecorded, Recordings

ORDER = Profile("p", "operators", 0, 5, "/storage", 100)


class Trainer:
    """What was sent to it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone, self.asked = asyncio.Event(), asyncio.Event()
        self.recordings = Recordings(self._send, self.gone)

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        self.asked.set()


async def test_an_answer_is_of_its_order() -> None:
    trainer = Trainer()
    recording = asyncio.ensure_future(trainer.recordings.record(ORDER, Path("/tmp/a")))
    await trainer.asked.wait()
    assert trainer.sent == [{"profile": {"id": "p", "kind": "operators", "seconds": 5, "path": "/tmp/a"}}]
    trainer.recordings.answer({"id": "another", "failed": None, "steps": 1})
    for _ in range(2):
        trainer.recordings.answer({"id": "p", "failed": None, "steps": 3})
    assert await recording == 3
    trainer.recordings.answer({"id": "p", "failed": None, "steps": 3})


async def test_an_answer_that_is_read_after_the_end_counts() -> None:
    trainer = Trainer()
    trainer.gone.set()
    recording = asyncio.ensure_future(trainer.recordings.record(ORDER, Path("/tmp/a")))
    await trainer.asked.wait()
    for _ in range(10):  # the end is seen
        await asyncio.sleep(0)
    trainer.recordings.answer({"id": "p", "failed": None, "steps": 3})
    assert await recording == 3


async def test_a_trainer_that_fails_ends_or_hangs_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    failed, ended = Trainer(), Trainer()
    recording = asyncio.ensure_future(failed.recordings.record(ORDER, Path("/tmp/a")))
    await failed.asked.wait()
    failed.recordings.answer({"id": "p", "failed": "no room", "steps": 1})
    with pytest.raises(NotRecorded, match="no room"):
        await recording
    ended.gone.set()
    monkeypatch.setattr(recordings, "LAST_ANSWER_S", 0.0)
    with pytest.raises(NotRecorded, match="its process ended"):
        await ended.recordings.record(ORDER, Path("/tmp/a"))
    monkeypatch.setattr(recordings, "PATIENCE_S", -5.0)
    with pytest.raises(NotRecorded, match="no step ended"):
        await Trainer().recordings.record(ORDER, Path("/tmp/a"))
