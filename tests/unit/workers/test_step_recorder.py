"""Recordings between two steps of an optimizer: whole steps of the main thread, and none that could end or outlive the program."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.patience import PATIENCE_S
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

from shardyard.workers import step_recorder, torch_recordings
from shardyard.workers.step_recorder import MOST_STEPS, StepRecorder


class Program:
    """Steps of one product each, and the rank's end of its connection."""

    def __init__(self) -> None:
        self._rank, mine = socket.socketpair()
        self._rank.settimeout(PATIENCE_S)
        self._answers = self._rank.makefile("rb")
        self.recorder = StepRecorder(lambda: torch_recordings, lambda: mine)
        self.weight = torch.nn.Parameter(torch.ones(2, 2))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1)
        self.step()

    def order(self, path: Path, seconds: float = 100.0, kind: str = "operators") -> None:
        line = json.dumps({"id": path.name, "kind": kind, "seconds": seconds, "path": str(path)})
        self._rank.sendall(line.encode() + b"\n")

    def step(self) -> None:
        self.optimizer.zero_grad()
        (torch.ones(2, 2) @ self.weight).sum().backward()
        self.optimizer.step()

    def until_begun(self) -> None:
        """Steps until one is the first that is recorded."""
        while not self.recorder._running:
            self.step()

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer

    def answered(self) -> dict[str, Any]:
        """The answer to an order, at which the program steps meanwhile."""
        found: list[dict[str, Any]] = []
        reader = threading.Thread(target=lambda: found.append(self.answer()))
        reader.start()
        while reader.is_alive():
            self.step()
        return found[0]

    def close(self) -> None:
        self._answers.close()
        self._rank.close()


@pytest.fixture
def program() -> Iterator[Program]:
    with following() as made:
        yield made


@contextmanager
def following() -> Iterator[Program]:
    made = Program()
    handle = register_optimizer_step_post_hook(made.recorder.after_step)
    try:
        made.step()  # which connects
        yield made
    finally:
        handle.remove()
        made.close()


def forward_passes(path: Path) -> int:
    events = json.loads(path.read_text())["traceEvents"]
    return sum(event.get("name") == "aten::matmul" for event in events)


def test_whole_steps_are_recorded_and_no_more_than_ten(program: Program, tmp_path: Path) -> None:
    for name in ("first", "second"):
        program.order(tmp_path / name)
        assert program.answered() == {"id": name, "failed": None, "steps": MOST_STEPS}
        assert forward_passes(tmp_path / name) == MOST_STEPS
    program.order(tmp_path / "short", seconds=0.0)
    assert program.answered()["steps"] == 1 and forward_passes(tmp_path / "short") == 1


def test_steps_of_another_optimizer_are_part_of_a_step(program: Program, tmp_path: Path) -> None:
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    program.order(tmp_path / "a")
    program.until_begun()
    for _ in range(MOST_STEPS):
        other.step()
    assert program.recorder._running
    assert program.answered()["steps"] == MOST_STEPS


def test_memory_of_a_cpu_is_refused(program: Program, tmp_path: Path) -> None:
    program.order(tmp_path / "a", kind="memory")
    assert "CUDA devices only" in program.answer()["failed"]


def test_an_order_to_a_program_that_does_not_step_fails(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_recorder, "STEP_S", 0.1)
    program.order(tmp_path / "a")
    assert "no optimizer of torch has ended a step" in program.answer()["failed"]
    monkeypatch.undo()
    program.order(tmp_path / "b")
    assert program.answered()["failed"] is None


def test_a_step_on_another_thread_is_not_recorded(program: Program, tmp_path: Path) -> None:
    program.order(tmp_path / "a")
    while not program.recorder._wanted:
        time.sleep(0.001)
    thread = threading.Thread(target=program.step, name="TrainingThread")
    thread.start()
    thread.join()
    assert "on the thread 'TrainingThread', not on the main" in program.answer()["failed"]


def test_a_step_within_a_backward_pass_neither_begins_nor_ends_one(program: Program, tmp_path: Path) -> None:
    """Torch restores a thread's profiler after a backward pass."""
    weight = torch.nn.Parameter(torch.ones(2))
    inner = torch.optim.SGD([weight], lr=0.1)
    weight.register_post_accumulate_grad_hook(lambda _: inner.step())
    program.order(tmp_path / "a", seconds=0.0)
    while not program.recorder._wanted:
        time.sleep(0.001)
    weight.sum().backward()
    assert program.recorder._wanted and not program.recorder._running
    assert program.answered()["failed"] is None


def test_a_step_that_lasts_is_cut_on_the_main_thread(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one with an evaluation, of which the process would otherwise keep all operators."""
    monkeypatch.setattr(step_recorder, "OVERTIME_S", 0.1)
    monkeypatch.setattr(step_recorder, "GIVE_UP_S", PATIENCE_S)
    program.order(tmp_path / "a", seconds=0.1)
    program.until_begun()
    while program.recorder._running:
        torch.ones(2).exp()
        time.sleep(0.001)
    assert program.answer() == {"id": "a", "failed": None, "steps": 0}
    assert "aten::exp" in {event.get("name") for event in json.loads((tmp_path / "a").read_text())["traceEvents"]}


def test_a_profiler_of_the_programs_own_is_left_alone_and_may_begin(program: Program, tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as own:
        program.order(tmp_path / "a")
        assert "own code runs" in program.answered()["failed"]
        torch.ones(2).exp()
    assert "aten::exp" in {event.key for event in own.key_averages()}
    program.order(tmp_path / "b")
    program.until_begun()
    with profile(activities=[ProfilerActivity.CPU]) as later:
        torch.ones(2).exp()
    assert "aten::exp" in {event.key for event in later.key_averages()}
    assert "own code began meanwhile" in program.answered()["failed"]
    program.order(tmp_path / "c")
    assert program.answered()["failed"] is None


def test_a_recording_ends_before_the_process_forks(program: Program, tmp_path: Path) -> None:
    """As a loader of data does: the child would record for ever."""
    for path, steps in ((tmp_path / "a", 0), (tmp_path / "b", 2)):
        program.order(path)
        program.until_begun()
        for _ in range(steps):
            program.step()
        if not (child := os.fork()):
            os._exit(torch._C._autograd._profiler_enabled())
        assert os.waitpid(child, 0)[1] == 0 and not program.recorder._running
    assert "started a process within the first step" in program.answer()["failed"]
    assert program.answer()["steps"] == 2 and forward_passes(tmp_path / "b") == 2
