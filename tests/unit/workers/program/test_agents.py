"""What a program's processes report: hostile, silent and late ones, too."""

import json
import os
import socket
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.rank_event import FailedEvent
from shardyard.workers.program import agents as module
from shardyard.workers.program.agents import Agents, facts_of, listening
from shardyard.workers.program.python_agent import sitecustomize


def connect(agents: Agents) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + agents.name)
    return connection


def hello(agents: Agents, **more: object) -> socket.socket:
    connection = connect(agents)
    connection.sendall(json.dumps({"pid": os.getpid(), "rank": "0", **more}).encode() + b"\n")
    return connection


def test_the_main_process_is_believed_before_others() -> None:
    with listening(print) as agents:
        for pid, text in ((7, "of a worker"), (8, "of the program")):
            failed = {"type": "ValueError", "message": text, "traceback": "t"}
            hello(agents, pid=pid, failed=failed).close()
        assert agents.failures()[8] == FailedEvent(type="ValueError", message="of the program", traceback="t")


def test_of_many_exceptions_the_first_and_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FAILURES", 3)
    with listening(print) as agents:
        for pid in range(1, 7):
            hello(agents, pid=pid, failed={"type": "E", "message": "m", "traceback": ""}).close()
        assert list(agents.failures()) == [1, 5, 6]


def test_connections_of_processes_that_have_ended_are_closed() -> None:
    ended = []
    for _ in range(3):  # as the workers of a driver that tunes
        with subprocess.Popen(["true"]) as process:
            ended.append(process.pid)
    with ExitStack() as stack, listening(print) as agents:
        for pid in (*ended, os.getpid()):
            stack.enter_context(hello(agents, pid=pid))
        hello(agents, pid=1, failed={"type": "E", "message": "m", "traceback": ""}).close()
        assert list(agents.failures()) == [1]  # all before it have been taken
        assert list(agents._connections) == [os.getpid()]


def test_nonsense_is_dropped_and_the_next_report_is_heard() -> None:
    with listening(print) as agents:
        for nonsense in (
            b"\n",
            b"[]\n",
            b'{"pid": "x"}\n',
            b'{"pid": 1, "failed": 3}\n',
            b'{"pid": 1, "failed": {"type": 1}}\n',
            b"",
        ):
            with connect(agents) as connection:
                connection.sendall(nonsense)
        hello(agents, pid=9, failed={"type": "E", "message": "m", "traceback": ""}).close()
        assert next(iter(agents.failures().values())) == FailedEvent(type="E", message="m", traceback="")


def test_a_process_without_a_group_is_at_work_and_a_silent_one_has_no_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(print) as agents:
        assert agents.status(os.getpid())["phase"] == "program" and agents.status(os.getpid())["idle_s"] == 0.0
        with hello(agents) as connection:
            answered = threading.Thread(target=_answer_late, args=(connection,))
            while not agents._connections:
                pass
            monkeypatch.setattr(module, "ANSWER_S", 0.05)
            assert agents.status(os.getpid()) == {}
            answered.start()
            monkeypatch.setattr(module, "ANSWER_S", PATIENCE_S)
            assert agents.status(os.getpid())["stacks"] == ["second"], "a late answer is not taken for the next one"
            answered.join()


def _answer_late(connection: socket.socket, times: int = 2) -> None:
    questions = connection.makefile("rb")
    for stacks in (["first"], ["second"])[:times]:
        answer = {"asked": int(questions.readline()), "stacks": stacks, "dumps": [], "groups": {}}
        connection.sendall(json.dumps(answer).encode() + b"\n")


def test_a_dump_of_another_format_costs_the_collectives_alone() -> None:
    found = facts_of({"stacks": ["s"], "dumps": [{"entries": [{"odd": 1}]}, {}], "groups": {}})
    assert (found["collectives"], found["stacks"], found["idle_s"]) == ([], ["s"], 0.0)


def test_a_request_gets_its_answer_and_counts_as_progress_until_then(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def answer(request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return {"read": os.read(handles[0], 10).decode(), "asked": request["asked"]}

    (tmp_path / "file").write_text("content")
    with listening(print, answer) as agents, (tmp_path / "file").open("rb") as file:
        for _ in range(2):
            begun.clear()
            go_on.clear()
            with hello(agents, request=True) as connection, connection.makefile("rb") as answers:
                assert answers.readline() == b"{}\n"
                question = json.dumps({"asked": "x" * 1_000}).encode() + b"\n"
                socket.send_fds(connection, [question], [file.fileno()])
                assert begun.wait(PATIENCE_S) and agents._is_saving()
                go_on.set()
                assert json.loads(answers.readline())["asked"] == "x" * 1_000
                assert not answers.readline() and not agents._is_saving()


def test_a_request_that_no_service_answers_or_that_is_nonsense_is_ended() -> None:
    with listening(print) as agents, hello(agents, request=True) as connection, connection.makefile("rb") as answers:
        assert answers.readline() == b"{}\n"
        connection.sendall(b"{}\n")
        assert b"saves no checkpoints" in answers.readline()
    with listening(print) as agents, hello(agents, request=True) as connection, connection.makefile("rb") as answers:
        assert answers.readline() == b"{}\n"
        connection.sendall(b"nonsense\n")
        assert not answers.readline()


def test_the_stacks_of_a_driver_are_added_to_those_of_a_worker_with_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", PATIENCE_S)
    with listening(print) as agents:
        with hello(agents, driver=True) as driver:
            while not agents._drivers:
                pass
            answered = threading.Thread(target=_answer_late, args=(driver,))
            answered.start()
            found = agents.status(os.getpid())
            assert (found["stacks"], found["phase"], found["idle_s"]) == (["first"], "program", 0.0)
            with hello(agents, pid=os.getppid()) as worker:
                while not agents._connections:
                    pass
                threading.Thread(target=_answer_late, args=(worker, 1)).start()
                assert agents.status(os.getpid())["stacks"] == ["first", "second"]
            answered.join()
        with hello(agents, pid=1 << 22, driver=True), hello(agents, pid=os.getppid(), driver=True):
            while os.getppid() not in agents._drivers:
                pass
            assert 1 << 22 not in agents._drivers, "the connections of drivers that have ended are closed"


def test_of_an_exception_in_a_task_of_ray_the_cause_is_reported_without_colours() -> None:
    kind = type("RayTaskError(KeyError)", (KeyError,), {})
    wrapped = kind("\x1b[36mray::f()\x1b[39m")
    wrapped.cause = KeyError("x")
    assert sitecustomize._raised_in_worker(wrapped) is wrapped.cause
    plain = KeyError("x")
    assert sitecustomize._raised_in_worker(plain) is plain
    assert sitecustomize._end_of("\x1b[36mray::f()\x1b[39m (pid=1)") == "ray::f() (pid=1)"


def test_a_driver_names_the_callback_once_beside_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, wanted in (
        ("", ""),
        ("mine.Own", "mine.Own,"),
        (f"mine.Own,{sitecustomize.TRAIN_REPORTS}", "mine.Own,"),
    ):
        monkeypatch.setenv(sitecustomize.TRAIN_CALLBACKS, given)
        sitecustomize._log_train_reports()
        assert os.environ[sitecustomize.TRAIN_CALLBACKS] == f"{wanted}{sitecustomize.TRAIN_REPORTS}"
