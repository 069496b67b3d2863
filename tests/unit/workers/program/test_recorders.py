"""Orders to programs that know nothing of them: a real script records itself, goes on, and ends as it would have ended."""

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import until
from harness.patience import PATIENCE_S

from shardyard.workers.program.agents import Agents, listening
from shardyard.workers.program.environment import environment
from shardyard.workers.program.recorders import MOST_ANSWER, Recorders
from shardyard.workers.trainer.pending_profile import PendingProfile, RecordingOrder

#: Steps until its folder has the file `stop`; then ends within a step, with operators after its last one.
SCRIPT = """
import pathlib, sys, torch
root = pathlib.Path(sys.argv[1])
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while not (root / "stop").exists():
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    print("step", flush=True)
model(torch.ones(3, 4))
raise SystemExit(5)
"""


@contextmanager
def running(agents: Agents, folder: Path, script: str = SCRIPT) -> Iterator["subprocess.Popen[bytes]"]:
    env = environment({}, [agents.name], None, os.environ)
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], env=env, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def until_known(agents: Agents) -> None:
    """A process says that it can record itself, and goes on: what it prints then may be here before."""
    until(lambda: bool(agents.recorders._connections), PATIENCE_S, "the process to be known")


class Orders:
    """Orders as they come from the actor, and their answers."""

    def __init__(self, agents: Agents) -> None:
        self.answers = queue.Queue[dict[str, Any]]()
        self.pending = PendingProfile()
        self.pending.deliver_to(lambda order: agents.recorders.record(self._emit, order))

    def _emit(self, kind: str, data: dict[str, Any]) -> None:
        assert kind == "profiled"
        self.answers.put(data)

    def order(self, path: Path, seconds: float = 100.0) -> None:
        self.pending.order(RecordingOrder(path.name, "operators", seconds, str(path)))

    def answer(self) -> dict[str, Any]:
        return self.answers.get(timeout=PATIENCE_S)


def test_an_unchanged_script_is_recorded_and_ends_as_it_would(tmp_path: Path) -> None:
    with listening(print) as agents:
        orders = Orders(agents)
        orders.order(tmp_path / "early")
        assert "no process of this rank has made a step" in orders.answer()["failed"]
        with running(agents, tmp_path) as process:
            assert process.stdout is not None and process.stdout.readline() == b"step\n"
            until_known(agents)
            orders.order(tmp_path / "trace", seconds=0.0)
            while orders.answers.empty() and process.stdout.readline():
                pass
            answer = orders.answer()
            assert (answer["id"], answer["failed"], answer["steps"]) == ("trace", None, 1)
            events = json.loads((tmp_path / "trace").read_text())["traceEvents"]
            assert sum(event.get("name") == "aten::addmm" for event in events) == 1
            (tmp_path / "stop").touch()
            process.stdout.read()
            assert process.wait(PATIENCE_S) == 5
        orders.order(tmp_path / "late")
        assert "no process of this rank" in orders.answer()["failed"]


def test_a_process_that_has_ended_holds_no_connection() -> None:
    """A program may start thousands, one after the other."""
    recorders, (one, of_one), (other, of_other) = Recorders(), socket.socketpair(), socket.socketpair()
    process = subprocess.Popen(["true"])
    recorders.add(process.pid, one)
    process.wait(PATIENCE_S)
    recorders.add(os.getpid(), other)
    assert one.fileno() == -1 and other.fileno() != -1
    recorders.close()
    of_one.close()
    of_other.close()


@pytest.mark.parametrize(
    "answer",
    [
        b'{"id": "mine", "failed": 3, "steps": 1}\n',
        b'{"id": "mine", "failed": null, "steps": "1"}\n',
        b'{"id": "mine"}\n',
        b"[" * 100_000 + b"\n",
        b"x" * (MOST_ANSWER + 1),
    ],
)
def test_an_answer_that_is_nonsense_ends_the_order(answer: bytes) -> None:
    recorders, (one, of_one), answers = Recorders(), socket.socketpair(), queue.Queue[dict[str, Any]]()
    with one, of_one:
        recorders.add(os.getpid(), one)
        threading.Thread(target=lambda: of_one.recv(1) and of_one.sendall(answer)).start()
        recorders.record(lambda _, data: answers.put(data), RecordingOrder("mine", "operators", 1.0, "/path"))
        assert answers.get(timeout=PATIENCE_S) == {"id": "mine", "failed": "its process did not answer", "steps": 0}


@pytest.mark.parametrize("ending", ["raise SystemExit(5)", "raise ValueError(3)"])
@pytest.mark.full
def test_a_program_that_ends_while_it_is_recorded_ends_as_it_would(tmp_path: Path, ending: str) -> None:
    """Torch crashes a process that ends with a profiler."""
    script = SCRIPT.replace("raise SystemExit(5)", ending).replace(
        "print", "import threading; print(len(threading.enumerate()), torch._C._autograd._profiler_enabled()) or print"
    )
    with listening(print) as agents, running(agents, tmp_path, script) as process:
        assert process.stdout is not None and process.stdout.readline()
        until_known(agents)
        orders = Orders(agents)
        orders.order(tmp_path / "trace", seconds=PATIENCE_S)
        assert any(b"True" in line for line in iter(process.stdout.readline, b""))
        (tmp_path / "stop").touch()
        process.stdout.read()
        assert process.wait(PATIENCE_S) == (5 if "Exit" in ending else 1)
        assert orders.answer()["failed"] in (None, "its process ended")


@pytest.mark.full
def test_a_program_that_never_steps_but_has_joined_a_group_may_be_asked(tmp_path: Path) -> None:
    script = """
import sys, time, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
print("joined", flush=True)
time.sleep(600)
"""
    with listening(print) as agents, running(agents, tmp_path, script) as process:
        assert process.stdout is not None and process.stdout.readline() == b"joined\n"
        until_known(agents)
        orders = Orders(agents)
        orders.pending.order(RecordingOrder("m", "memory", 1, str(tmp_path / "m")))
        assert "CUDA devices only" in orders.answer()["failed"]
        orders.order(tmp_path / "trace")
        process.kill()
        assert orders.answer()["failed"].startswith(
            ("its process ended", "its process did not answer", "no process of")
        )
