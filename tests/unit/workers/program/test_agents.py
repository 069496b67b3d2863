"""What a program's processes report: hostile, silent and late ones, too."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import threading
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from harness.patience import PATIENCE_S

from shardyard.workers.messages.metric_block import MetricBlock, packed
from shardyard.workers.messages.rank_event import FailedEvent
from shardyard.workers.program import agents as module
from shardyard.workers.program import process_failures, rank_request
from shardyard.workers.program.agent_messages import MOST_HELLO
from shardyard.workers.program.agents import Agents, facts_of, failure_time, listening
from shardyard.workers.program.python_agent import sitecustomize
from shardyard.workers.supervisor.policies.examination import Examination
from shardyard.workers.supervisor.policies.hang import hung
from shardyard.workers.thread_stacks import MOST_THREADS


def connect(agents: Agents) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("\0" + agents.name)
    return connection


def hello(agents: Agents, **more: object) -> socket.socket:
    connection = connect(agents)
    connection.sendall(json.dumps({"pid": os.getpid(), "rank": "0", **more}).encode() + b"\n")
    return connection


def refuses(agents: Agents) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex("\0" + agents.name) == errno.ECONNREFUSED


def test_the_main_process_is_believed_before_others() -> None:
    with listening(print) as agents:
        for pid, text in ((7, "of a worker"), (8, "of the program")):
            failed = {"type": "ValueError", "message": text, "traceback": "t"}
            hello(agents, pid=pid, failed=failed).close()
        assert agents.failures(time.monotonic())[8] == FailedEvent(
            type="ValueError", message="of the program", traceback="t"
        )


def test_of_many_exceptions_the_first_and_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_failures, "MOST_FAILURES", 3)
    with listening(print) as agents:
        for pid in range(1, 7):
            hello(agents, pid=pid, failed={"type": "E", "message": "m", "traceback": ""}).close()
        assert list(agents.failures(time.monotonic())) == [1, 5, 6]


def test_connections_of_processes_that_have_ended_are_closed() -> None:
    ended = []
    for _ in range(3):  # as the workers of a driver that tunes
        with subprocess.Popen(["true"]) as process:
            ended.append(process.pid)
    with ExitStack() as stack, listening(print) as agents:
        for pid in (*ended, os.getpid()):
            stack.enter_context(hello(agents, pid=pid))
        hello(agents, pid=1, failed={"type": "E", "message": "m", "traceback": ""}).close()
        assert list(agents.failures(time.monotonic())) == [1]  # all before it have been taken
        assert list(agents._connections) == [os.getpid()]


def test_nonsense_is_dropped_and_the_next_report_is_heard() -> None:
    with listening(print) as agents:
        for nonsense in (
            b"\n",
            b"[]\n",
            b'{"pid": "x"}\n',
            b'{"pid": "1"}\n',
            b'{"pid": true}\n',
            b'{"pid": 0}\n',
            b'{"pid": -1}\n',
            b'{"pid": 1.0}\n',
            b'{"pid": 1e400}\n',
            b'{"pid": 2147483648}\n',
            b'{"pid": 2147483648, "driver": true}\n',
            b'{"pid": 2147483648, "records": true}\n',
            b"[" * 100_000 + b"\n",
            b'{"pid": 1, "failed": {"type": "E", "message": "m"}}\n',
            b'{"pid": 1, "artifacts": true}\n',
            b'{"pid": 1, "metrics": true, "restarts": "1"}\n',
            b'{"pid": 1, "metrics": true, "restarts": 1.5}\n',
            b'{"pid": 1, "padding": "' + b"x" * MOST_HELLO + b'"}\n',
            b'{"pid": 1, "failed": 3}\n',
            b'{"pid": 1, "failed": {"type": 1}}\n',
            b"",
        ):
            with (
                connect(agents) as connection,
                contextlib.suppress(ConnectionError),
            ):  # the longest is refused before its end
                connection.sendall(nonsense)
        with hello(agents), hello(agents, driver=True), hello(agents, records=True):  # looks at those that are known
            failed = {"type": "E", "message": "m", "traceback": "", "step": 1, "facts": {"rank": 1 << 70}}
            hello(agents, pid=9, failed=failed).close()
            assert agents.failures(time.monotonic()) == {9: FailedEvent(type="E", message="m", traceback="")}


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
            assert agents.status(os.getpid())["stacks"] == [stack("second")], (
                "a late answer is not taken for the next one"
            )
            answered.join()


def stack(frame: str) -> dict[str, Any]:
    return {"thread": "MainThread", "frames": [frame], "call": ""}


def _answer_late(connection: socket.socket, times: int = 2) -> None:
    questions = connection.makefile("rb")
    for frame in ("first", "second")[:times]:
        answer = {
            "asked": int(questions.readline()),
            "stacks": [stack(frame)],
            "dumps": [],
            "groups": {},
            "joined": True,
        }
        connection.sendall(json.dumps(answer).encode() + b"\n")


def test_an_answer_that_is_nonsense_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", PATIENCE_S)
    good = {"stacks": [stack("x" * 10_000)] * 100, "dumps": [], "groups": {}, "joined": True}
    changes: list[dict[str, Any]] = [
        {"stacks": 3},
        {"stacks": [3]},
        {"stacks": [{"thread": "t", "frames": [3], "call": ""}]},
        {"stacks": [{"thread": None, "frames": [], "call": ""}]},
        {"dumps": None},
        {"groups": []},
        {"groups": {"0": ["a"]}},
        {},
    ]

    def answer(connection: socket.socket) -> None:
        asked = {"asked": int(connection.makefile("rb").readline())}
        messages = [[], 3, "text", asked, {"asked": None}, *(asked | good | change for change in changes)]
        lines = [b"[" * 100_000, b"\xff", *(json.dumps(message).encode() for message in messages)]
        connection.sendall(b"".join(line + b"\n" for line in lines))

    with listening(print) as agents, hello(agents) as connection:
        while not agents._connections:
            pass
        thread = threading.Thread(target=answer, args=(connection,))
        thread.start()
        found = agents.status(os.getpid())["stacks"]
        thread.join()
    assert len(found) == MOST_THREADS and found[0] == stack("x" * 4096)


def test_a_process_that_floods_its_answer_is_asked_no_longer_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    with listening(print) as agents, hello(agents) as connection:

        def flood() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection.sendall(b'{"asked": 1}\n' * 1_000)

        thread = threading.Thread(target=flood)
        thread.start()
        while not agents._connections:
            pass
        assert agents.status(os.getpid()) == {}
        agents.close()
        thread.join()


@pytest.mark.parametrize(
    "dump",
    [
        {},
        "text",
        {"entries": [{"odd": 1}]},
        {"entries": ["text"]},
        {"entries": [{"process_group": ["0", None], "collective_seq_id": 1, "profiling_name": "gloo:x"}]},
        {"entries": [{"process_group": ["0", ""], "collective_seq_id": 1e400, "profiling_name": "gloo:x"}]},
        {
            "entries": [
                {
                    "process_group": ["0", ""],
                    "p2p_seq_id": 1,
                    "is_p2p": True,
                    "profiling_name": "gloo:send 0->9",
                    "time_created_ns": 0,
                }
            ]
        },
        {
            "entries": [
                {
                    "process_group": ["0", ""],
                    "collective_seq_id": 1,
                    "profiling_name": "gloo:x",
                    "time_created_ns": 10**400,
                }
            ]
        },
    ],
)
def test_a_dump_of_another_format_costs_the_collectives_alone(dump: Any) -> None:
    found = facts_of({"stacks": ["s"], "dumps": [dump], "groups": {"0": [0]}, "joined": True})
    assert (found["collectives"], found["stacks"], found["idle_s"]) == ([], ["s"], 0.0)


@pytest.mark.parametrize(("joined", "hangs"), [(True, True), (False, False)])
def test_a_process_that_has_destroyed_its_groups_is_at_work(joined: bool, hangs: bool) -> None:
    """The flight recorder keeps its collectives: what it does afterwards, such as an export, is no hang."""
    entry = {"process_group": ["0", "default_pg"], "time_created_ns": 0, "time_discovered_completed_ns": 1}
    answer = {"stacks": [], "dumps": [{"entries": [entry]}], "groups": {}, "joined": joined}
    assert hung([Examination.of(0, {"state": "S"} | facts_of(answer))], quick_s=60.0, slow_s=600.0) is hangs


def test_a_process_is_in_a_group_until_it_destroys_it() -> None:
    assert not sitecustomize.joined()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert sitecustomize.joined() and sitecustomize.groups() == {"0": [0]}
    finally:
        dist.destroy_process_group()
    assert not sitecustomize.joined()


def test_collectives_are_those_of_the_gangs_ranks() -> None:
    """Torchrun has given the gang's rank 4 the number 2."""
    entry = {
        "process_group": ["7", "default_pg"],
        "p2p_seq_id": 1,
        "is_p2p": True,
        "profiling_name": "nccl:send 0->1",
        "time_created_ns": 0,
    }

    def answer(connection: socket.socket) -> None:
        asked = int(connection.makefile("rb").readline())
        sent = {"asked": asked, "stacks": [], "dumps": [{"entries": [entry]}], "groups": {"7": [0, 2]}, "joined": True}
        connection.sendall(json.dumps(sent).encode() + b"\n")

    with listening(print, numbered=(0, 1, 4, 5, 2, 3)) as agents, hello(agents) as connection:
        while not agents._connections:
            pass
        thread = threading.Thread(target=answer, args=(connection,))
        thread.start()
        (record,) = agents.status(os.getpid())["collectives"]
        thread.join()
    assert (record["ranks"], record["messages"][0]["peer"]) == ([0, 4], 4)


def test_the_last_metrics_are_taken_however_late_and_no_process_that_lives_on_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ASKED_S", 0.0)
    go_on, taken = threading.Event(), list[MetricBlock]()

    def take(blocks: list[MetricBlock], _: int) -> None:
        assert go_on.wait(PATIENCE_S)
        taken.extend(blocks)

    blocks = [MetricBlock((name,), (1,), packed(array("d", [1.0]))) for name in ("a", "b", "c")]
    with listening(take) as agents, hello(agents, metrics=True) as lives, ExitStack() as silent:
        while not agents._followed:
            pass
        monkeypatch.setattr(module, "HELLO_S", 0.05)
        silent.enter_context(connect(agents))
        for block in blocks:
            lives.sendall(json.dumps([asdict(block)]).encode() + b"\n")
        finish = threading.Thread(target=agents.finish)
        finish.start()
        while not refuses(agents):
            pass
        go_on.set()
        finish.join()
        assert taken == blocks
        lives.settimeout(PATIENCE_S)
        assert lives.recv(1) == b"", "its connection has ended"


def test_a_moment_without_descriptors_does_not_end_the_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, errors = socket.socket.accept, [errno.ENFILE, errno.EMFILE]

    def accept(listener: socket.socket) -> Any:
        if errors:
            raise OSError(errors.pop(), "too many open files")
        return usual(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with listening(print) as agents:
        hello(agents, pid=9, failed={"type": "E", "message": "m", "traceback": ""}).close()
        assert list(agents.failures(time.monotonic())) == [9] and not errors


def test_many_processes_may_connect_while_one_has_not_said_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first line is waited for, and the others wait in the backlog meanwhile."""
    monkeypatch.setattr(module, "HELLO_S", PATIENCE_S)
    with listening(print) as agents, ExitStack() as clients:
        for _ in range(120):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect("\0" + agents.name)
        clients.close()


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


def test_a_long_request_arrives_whole(tmp_path: Path) -> None:
    """With its descriptors goes what fits into the socket's buffer."""
    (tmp_path / "file").write_text("content")

    def answer(request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
        return {"read": os.read(handles[0], 10).decode(), "length": len(request["text"])}

    with listening(print, answer) as agents, (tmp_path / "file").open("rb") as file:
        found = rank_request.answer(agents.name, {"text": "x" * 1_000_000}, (file.fileno(),))
    assert found == {"read": "content", "length": 1_000_000}


def test_a_request_that_no_service_answers_or_that_is_nonsense_is_ended() -> None:
    with listening(print) as agents, hello(agents, request=True) as connection, connection.makefile("rb") as answers:
        assert answers.readline() == b"{}\n"
        connection.sendall(b"{}\n")
        assert b"saves no checkpoints" in answers.readline()
    for nonsense in (b"nonsense", b"[]", b"3", b"[" * 100_000):
        with (
            listening(print) as agents,
            hello(agents, request=True) as connection,
            connection.makefile("rb") as answers,
        ):
            assert answers.readline() == b"{}\n"
            connection.sendall(nonsense + b"\n")
            assert not answers.readline(), nonsense[:10]


def test_a_wait_for_the_end_of_a_program_outlives_connections_whose_first_line_came_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, late = module.checked_hello, [TimeoutError(), TimeoutError()]

    def checked(line: bytes) -> Any:
        if late:
            raise late.pop()
        return usual(line)

    monkeypatch.setattr(module, "checked_hello", checked)
    with listening(print) as agents, ThreadPoolExecutor(1) as pool:
        failed = pool.submit(failure_time, agents.name, lambda: True, 0.01)
        while not agents._waiting:
            assert not failed.done(), "the program has not ended"
        agents.release(12.5)
        assert failed.result(PATIENCE_S) == 12.5
        agents.close()
        assert failure_time(agents.name, lambda: True, 0.01) is None, (
            "its actor reports the end of the process that has started the program"
        )


def test_the_stacks_of_a_driver_are_added_to_those_of_a_worker_with_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", PATIENCE_S)
    with listening(print) as agents:
        with hello(agents, driver=True) as driver:
            while not agents._drivers:
                pass
            answered = threading.Thread(target=_answer_late, args=(driver,))
            answered.start()
            found = agents.status(os.getpid())
            assert (found["stacks"], found["phase"], found["idle_s"]) == ([stack("first")], "program", 0.0)
            with hello(agents, pid=os.getppid()) as worker:
                while not agents._connections:
                    pass
                threading.Thread(target=_answer_late, args=(worker, 1)).start()
                assert agents.status(os.getpid())["stacks"] == [stack("first"), stack("second")]
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


def test_an_exception_without_a_message_of_its_own_is_reported() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert sitecustomize._text_of(Odd()) == "<exception str() failed>"


def test_a_driver_names_the_callback_once_beside_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, wanted in (
        ("", ""),
        ("mine.Own", "mine.Own,"),
        (f"mine.Own,{sitecustomize.TRAIN_REPORTS}", "mine.Own,"),
    ):
        monkeypatch.setenv(sitecustomize.TRAIN_CALLBACKS, given)
        sitecustomize._log_train_reports()
        assert os.environ[sitecustomize.TRAIN_CALLBACKS] == f"{wanted}{sitecustomize.TRAIN_REPORTS}"
