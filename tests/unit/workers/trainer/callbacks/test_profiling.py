"""A recording has the steps that it was ordered for, is answered once, and never ends a training."""

import json
import threading
from pathlib import Path
from typing import Any

import torch
from harness.patience import PATIENCE_S

from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.trainer.callbacks.profiling import MOST_STEPS, Profiling
from shardyard.workers.trainer.pending_profile import PendingProfile, RecordingOrder
from shardyard.workers.trainer.step_record import StepRecord, StepStats


class Training:
    """Steps of one product each, and the answers."""

    def __init__(self) -> None:
        self.pending, self.answers, self._answered = PendingProfile(), list[dict[str, Any]](), threading.Event()
        self.callback = Profiling(self.pending, torch.device("cpu"), self._emit)

    def _emit(self, kind: str, data: dict[str, Any]) -> None:
        assert kind == "profiled"
        self.answers.append(data)
        self._answered.set()

    def order(self, path: Path, seconds: float = 100.0, kind: Any = "operators") -> None:
        self.pending.order(RecordingOrder("p", kind, seconds, str(path)))

    def step(self, number: int) -> None:
        self.callback.before_step(number)
        torch.ones(2, 2) @ torch.ones(2, 2)
        stats = StepStats(number, 1.0, 1.0, 1.0, None, False, StopRequest.NO, 0.0, None)
        self.callback.after_step(StepRecord(stats, 0.1, 0.1))

    def answer(self) -> dict[str, Any]:
        assert self._answered.wait(PATIENCE_S)
        [answer] = self.answers
        return answer


def products(path: Path) -> int:
    return sum(event.get("name") == "aten::mm" for event in json.loads(path.read_text())["traceEvents"])


def test_whole_steps_are_recorded_and_no_more_than_ordered(tmp_path: Path) -> None:
    training = Training()
    training.step(1)
    training.order(tmp_path / "a.json")
    for number in range(2, 2 + MOST_STEPS + 3):
        training.step(number)
    assert training.answer() == {"id": "p", "failed": None, "steps": MOST_STEPS}
    assert products(tmp_path / "a.json") == MOST_STEPS


def test_a_short_one_ends_with_its_step_and_the_last_step_ends_any(tmp_path: Path) -> None:
    short, last = Training(), Training()
    short.order(tmp_path / "short.json", seconds=0.0)
    short.step(1)
    short.step(2)
    assert short.answer()["steps"] == products(tmp_path / "short.json") == 1
    last.order(tmp_path / "last.json")
    last.step(1)
    last.callback.finish(1, StopRequest.NO)
    last.callback.close()
    assert last.answer()["steps"] == products(tmp_path / "last.json") == 1


def test_what_fails_is_answered_and_the_training_goes_on(tmp_path: Path) -> None:
    lost, refused, broken = Training(), Training(), Training()
    lost.order(tmp_path / "absent" / "a.json", seconds=0.0)
    lost.step(1)
    lost.step(2)
    assert "could not be written" in lost.answer()["failed"]
    refused.order(tmp_path / "a.pickle", kind="memory")
    refused.step(1)
    assert "CUDA" in refused.answer()["failed"] and refused.answer()["steps"] == 0
    broken.order(tmp_path / "b.json")
    broken.callback.before_step(1)
    broken.callback.close()
    assert broken.answer()["failed"] == "the training failed meanwhile"
