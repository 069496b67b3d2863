import array
import contextlib
import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers import process_stat
from shardyard.workers.forkserver.client import _dial, connect
from shardyard.workers.forkserver.protocol import Request, kill, request
from shardyard.workers.forkserver.server import Child, Server
from shardyard.workers.messages.rendezvous import RankAssignment

ENTRY = """
import os, signal, sys, time, threading, subprocess
from shardyard.workers.messages import event_type, rank_event
def prepared():
    made = event_type._made.cache_info().misses
    rank_event.prepare()
    return event_type._made.cache_info().misses == made
def hello(run, coords, emit, instruments):
    print("out", flush=True); print("err", file=sys.stderr)
    emit("facts", {"torch": "torch.distributed.fsdp" in sys.modules, "threads": threading.active_count(),
                   "env": dict(os.environ), "sid": os.getsid(0) == os.getpid(), "cwd": os.getcwd(), "run": run, "prepared": prepared(),
                   "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
                   "quit": signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL})
def leave(run, coords, emit, instruments):
    script = "import subprocess, sys; child = subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3); print(child.pid)"
    gone = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    emit("orphan", {"pid": int(gone.stdout)})
    time.sleep(600)
def sleep(run, coords, emit, instruments):
    child = subprocess.Popen(["sleep", "600"])
    emit("child", {"pid": child.pid})
    time.sleep(600)
def until_stopped(run, coords, emit, instruments):
    emit("ready", {})
    while not instruments.stop_request(): time.sleep(0.01)
def wrong(run, coords, emit, instruments):
    raise KeyError("this")
"""


@pytest.fixture(scope="module")
def owner() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, owner: int) -> Iterator[Path]:
    """A warm server's folder; afterwards the owner dies, and the server with it."""
    root = Path(tmp_path_factory.mktemp("f"))
    root.chmod(0o700)
    (root / "code").mkdir()
    (root / "code" / "trainers.py").write_text(ENTRY)
    yield root
    os.kill(owner, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while list(root.glob("fork-*/s")):
        assert time.monotonic() < deadline, "the server outlives its owner"
        time.sleep(0.05)


def environment(root: Path) -> dict[str, str]:
    """This process's, in which `trainers` can be imported."""
    paths = [str(root / "code"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


class Run:
    """A trainer under test, with all its ends in this process."""

    def __init__(self, root: Path, owner: int, entry: str) -> None:
        env = environment(root)
        self.fork = connect(root, owner, env)
        self.fork.settimeout(PATIENCE_S)
        self.control, theirs = socket.socketpair()
        self.control.settimeout(PATIENCE_S)
        (self.out, out), (self.err, err) = os.pipe(), os.pipe()
        order = Request(env | {"COLOUR": "blue"}, str(root), f"trainers:{entry}")
        self.bell, rings = socket.socketpair()
        request(self.fork, order, [theirs.fileno(), out, err, rings.fileno()])
        rings.close()
        theirs.close()
        os.close(out)
        os.close(err)
        self.replies = self.fork.makefile("rb")
        self.messages = self.control.makefile("rb")
        self.pid = int(self.reply()["pid"])

    def __enter__(self) -> "Run":
        orders = {"run": {"a": 1}, "coords": RankAssignment(0, 1, 0, "127.0.0.1", 1).to_json()}
        self.control.sendall(json.dumps(orders).encode() + b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.bell, self.replies, self.messages, self.fork, self.control):
            end.close()
        os.close(self.out)
        os.close(self.err)

    def reply(self) -> dict[str, Any]:
        return json.loads(self.replies.readline())

    def message(self) -> dict[str, Any]:
        return json.loads(self.messages.readline())

    def say(self, word: str, what: str | bool = True) -> None:
        self.control.sendall(json.dumps({word: what}).encode() + b"\n")


def ends(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def test_a_trainer_is_warm_single_and_has_its_own_surroundings(root: Path, owner: int) -> None:
    with Run(root, owner, "hello") as run:
        facts = run.message()["data"]
        assert (
            facts["torch"] and facts["prepared"] and facts["sid"] and facts["threads"] == 2
        )  # its own, and the one that listens
        assert facts["env"]["COLOUR"] == "blue" and facts["cwd"] == str(root) and facts["run"] == {"a": 1}
        assert facts["interrupt"] and facts["quit"], "the shell that starts the server ignores both"
        assert run.message()["kind"] == "done"
        assert os.read(run.out, 100) == b"out\n" and os.read(run.err, 100) == b"err\n"
        run.say("release")
        assert run.reply() == {"exit": 0}
    server = Path(f"/proc/{_server(root)}/task")
    assert len(list(server.iterdir())) == 1, "the server must stay single-threaded"


def _server(root: Path) -> int:
    (folder,) = root.glob("fork-*")
    marks = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _runs_in(p, folder)]
    return int(marks[0].name)


def _runs_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[-2] == os.fsencode(folder)
    except (OSError, IndexError):
        return False


def test_a_failure_is_reported_with_its_traceback(root: Path, owner: int) -> None:
    with Run(root, owner, "wrong") as run:
        data = run.message()["data"]
        assert (data["type"], data["message"]) == ("KeyError", "'this'") and "in wrong" in data["traceback"]
        assert run.reply() == {"exit": 1}


def test_a_stop_is_seen_by_the_trainer(root: Path, owner: int) -> None:
    with Run(root, owner, "until_stopped") as run:
        assert run.message()["kind"] == "ready"
        run.say("stop", "stop")
        assert run.message()["kind"] == "done"
        run.say("release")
        assert run.reply() == {"exit": 0}


def test_a_kill_reaches_what_the_trainer_started(root: Path, owner: int) -> None:
    with Run(root, owner, "sleep") as run:
        child = run.message()["data"]["pid"]
        kill(run.fork)
        assert run.reply() == {"exit": -signal.SIGKILL}
    assert ends(child)


class Forwarding(Server):
    """A server with one child and nothing to listen on."""

    def __init__(self, child: Child) -> None:
        self.children, self.selector = {child.pid: child}, selectors.DefaultSelector()


def test_a_kill_right_behind_its_request_reaches_a_trainer_without_a_session_of_its_own() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["sleep", "600"]) as process:  # of this process's group, as a fork is at first
        try:
            kill(ours)
            child = Child(process.pid, theirs)
            Forwarding(child)._forward_signals(child)
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
        finally:
            process.kill()


def test_a_signal_to_a_trainer_that_was_reaped_a_moment_ago_is_dropped() -> None:
    """Both may be ready at once. The connection is closed by then, and another process may have the id."""
    ours, theirs = socket.socketpair()
    child = Child(os.getpid(), theirs)
    server = Forwarding(child)
    del server.children[child.pid]
    kill(ours)
    theirs.close()
    server._forward_signals(child)
    ours.close()


def test_a_client_gets_the_reason_of_a_fork_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    ours, theirs = socket.socketpair()
    with ours, open(os.devnull, "rb") as null:  # noqa: PTH123
        server = Forwarding(Child(0, theirs))
        server.children.clear()
        server.selector.register(theirs, selectors.EVENT_READ)
        request(ours, Request({}), [null.fileno()])
        server._receive_request(theirs)
        with ours.makefile("rb") as replies:
            assert replies.read() == b'{"failed": "Resource temporarily unavailable"}\n'
    assert not server.children


def test_what_has_left_the_trainers_session_lives_and_ends_with_it(root: Path, owner: int) -> None:
    """Its parent is gone, and it leads a session of its own, as a daemon does."""
    with Run(root, owner, "leave") as run:
        orphan = run.message()["data"]["pid"]
        with Run(root, owner, "hello") as other:
            assert other.message()["kind"] == "facts"
            kill(other.fork)
            assert other.reply() == {"exit": -signal.SIGKILL}
        assert Path(f"/proc/{orphan}").exists(), "another trainer's end is none of its own"
        kill(run.fork)
        assert run.reply() == {"exit": -signal.SIGKILL}
    assert ends(orphan)


def test_a_trainer_ends_with_its_actor_even_when_frozen(root: Path, owner: int) -> None:
    with Run(root, owner, "sleep") as run:
        child = run.message()["data"]["pid"]
        os.kill(run.pid, signal.SIGSTOP)
    assert ends(run.pid) and ends(child)


def test_a_server_that_does_not_accept_yet_has_room_for_all_ranks_of_a_node(root: Path, owner: int) -> None:
    with Run(root, owner, "sleep") as run, contextlib.ExitStack() as ranks:
        server, (path,) = process_stat.read(run.pid).parent, root.glob("fork-*/s")
        os.kill(server, signal.SIGSTOP)
        try:
            for _ in range(200):
                assert ranks.enter_context(_dial(path.parent) or pytest.fail("it is not there"))
        finally:
            os.kill(server, signal.SIGCONT)


def test_nonsense_does_not_end_the_server(root: Path, owner: int) -> None:
    env = environment(root)
    for nonsense in (b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\4null", b'\0\0\0\x0e{"cwd": [1, 2]}'):
        with connect(root, owner, env) as connection:
            connection.sendall(nonsense)
    with connect(root, owner, env) as connection:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
        connection.sendmsg([b"\0\0\0\2{}"], rights)
    with Run(root, owner, "hello") as run:
        assert run.message()["kind"] == "facts"
