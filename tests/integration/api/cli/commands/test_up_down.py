"""Real processes: the control plane in the background, its death and return, jobs on its own Ray, and an end without leftovers."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import yaml
from harness.databases import migrated_sqlite
from harness.patience import PATIENCE_S
from sqlalchemy.engine import make_url

from shardyard.api import pidfile
from shardyard.api.cli.commands import up_down
from shardyard.api.cli.commands.up_down import Borrowed
from shardyard.api.cli.main import run
from shardyard.api.cli.run_lock import RunLock
from shardyard.api.cli.terminal.screen import Screen
from shardyard.api.client import Client
from shardyard.api.daemon import control_plane
from shardyard.service.cluster.ray_head import Head, Record
from shardyard.service.settings import Settings

from ...conftest import SPEC, Plane, until

TINY: dict[str, Any] = {
    "name": "tiny",
    "train": {
        "model": {"layers": 1, "dim": 32, "heads": 2, "kv_heads": 2, "hidden": 64},
        "data": {"source": "text", "files": ["corpus.txt"], "seq_len": 16},
        "layout": {"data": 2},
        "steps": 5,
        "global_batch": 4,
        "eval": {"batches": 1},
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder whose processes are ended after the test, whatever it did."""
    for name in ("SHARDYARD_URL", "SHARDYARD_DATABASE_URL", "SHARDYARD_RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    data = tmp_path / "data"
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(data))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "corpus.txt").write_text("to be or not to be, that is the question. " * 200)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    monkeypatch.chdir("/")  # a relative path in a spec counts from the spec
    yield data
    found = pidfile.read(data)
    if found is not None and found.process is not None and found.pid != os.getpid():
        found.process.kill()
    Head(data).shut_down()


class _Healthy(BaseHTTPRequestHandler):
    """Answers as a control plane does, and takes nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok"}')


@pytest.fixture
def another_plane() -> Iterator[None]:
    """Another user's control plane on the default port (or whatever listens there already)."""
    try:
        server = ThreadingHTTPServer(("127.0.0.1", urlsplit(pidfile.DEFAULT_URL).port or 0), _Healthy)
    except OSError:
        yield
        return
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


def shardyard(*arguments: str, code: int = 0, safe: bool = False) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and check its exit code. `safe`: as the installed command, which imports nothing of this folder."""
    command = [sys.executable, *(["-P"] if safe else []), "-m", "shardyard.api.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def ours(data: Path) -> set[int]:
    """Processes that carry the data folder in their environment or on their command line."""
    found = set()
    for process in psutil.process_iter():
        try:
            described = " ".join([*process.cmdline(), *process.environ().values()])
        except psutil.Error:
            continue
        if str(data) in described and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
            found.add(process.pid)
    return found


def test_nothing_to_stop(folder: Path) -> None:
    assert "Nothing was running" in shardyard("down").stdout
    assert not folder.exists()


def unread(database: str) -> None:
    """The database is one of an earlier version, before its migration."""
    with closing(sqlite3.connect(make_url(database).database or "")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")


def test_down_asks_if_it_cannot_count_the_active_jobs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after an upgrade, while jobs of the version before run on the Ray that `down` ends."""
    unread(migrated_sqlite(Settings().database))
    assert run(["down"]) == 0 and "Nothing was running" in capsys.readouterr().out
    head = Head(folder)
    head._write(Record(folder=str(folder / "ray"), boot="another"))
    assert run(["down"]) == 1
    assert "The database cannot be read" in (said := capsys.readouterr().err) and "--yes" in said
    assert head.file.exists()
    assert run(["down", "--yes"]) == 0 and "Stopped." in capsys.readouterr().out
    assert not head.file.exists()


def test_down_ends_no_ray_of_a_control_plane_that_it_does_not_see(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that starts, or is in another container: it has the lock, and its process is not here."""
    folder.mkdir()
    head = Head(folder)
    head._write(Record(folder=str(folder / "ray"), boot="another"))
    with released(pidfile.Lock(folder)) as another:
        assert another.take()
        assert run(["down", "--yes"]) == 1 and "(not_stopped)" in capsys.readouterr().err
    assert head.file.exists()


@contextmanager
def released(lock: pidfile.Lock) -> Iterator[pidfile.Lock]:
    try:
        yield lock
    finally:
        lock.release()


#: The process that stands for a borrowed control plane, and the data folders whose Ray was ended.
Started = tuple[pidfile.Control, list[Path]]


@pytest.fixture
def started(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """What `Borrowed` starts."""
    ended = list[Path]()
    with subprocess.Popen(["sleep", "300"]) as process:
        found = pidfile.Control(plane.url, process.pid, psutil.Process(process.pid).create_time())
        monkeypatch.setattr(up_down, "_start", lambda *_: (found, True))
        monkeypatch.setattr(control_plane, "end_ray", lambda settings: ended.append(settings.data_dir))
        try:
            yield found, ended
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("work", "stays"),
    [("queued", True), ("paused", False), ("sweep", True), ("ended", False), ("unread", True), ("none", False)],
)
def test_a_borrowed_control_plane_stays_for_other_work(
    work: str, stays: bool, started: Started, plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    match work:
        case "queued":
            client.submit(SPEC)
        case "paused":
            client.submit(SPEC).pause()
        case "sweep":
            client.submit_sweep({**SPEC, "sweep": {"parameters": {"train.optimizer.lr": [0.1, 0.2]}}})
        case "ended":
            client.submit(SPEC).cancel()
        case "unread":
            unread(plane.settings.database)
    found, _ = started
    with Borrowed(Screen()):
        pass
    assert (found.process is not None) is stays
    assert ("the control plane stays at" in capsys.readouterr().err) is stays


def test_a_borrowed_control_plane_stays_while_another_run_uses_it(
    started: Started, plane: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as one that uploads its code, so that no job of it is stored yet."""
    found, ray_ends = started
    other = RunLock(plane.settings.data_dir)
    with Borrowed(Screen()):
        assert other.share(wait=False)
    assert found.process is not None and ray_ends == []
    assert "Another `shardyard run` uses it: the control plane stays at" in capsys.readouterr().err
    other.release()
    with Borrowed(Screen()):
        pass
    assert found.process is None and ray_ends == [plane.settings.data_dir]


def test_a_borrowed_control_plane_is_stopped_if_its_command_is_ended_at_once(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    found, _ = started
    monkeypatch.setattr(up_down, "_sign_in", interrupted)
    with pytest.raises(KeyboardInterrupt), Borrowed(Screen()):
        pass
    assert found.process is None


def test_the_ray_of_a_control_plane_that_was_started_meanwhile_is_left(started: Started, plane: Plane) -> None:
    """As after `down` and `up` in another terminal."""
    found, ray_ends = started
    with released(pidfile.Lock(plane.settings.data_dir)) as another, Borrowed(Screen()):
        assert another.take()
    assert found.process is None and ray_ends == []


def test_a_run_waits_until_another_has_stopped_its_control_plane_and_is_seen_while_it_lives(
    folder: Path, plane: Plane, client: Client
) -> None:
    assert folder == plane.settings.data_dir
    pidfile.write(folder, pidfile.Control.of_this_process(plane.url))
    (folder.parent / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    lock = RunLock(folder)
    assert lock.alone()
    command = [sys.executable, "-m", "shardyard.api.cli", "run", str(folder.parent / "spec.yaml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None and "has stopped its control plane" in process.stderr.readline()
            assert client.jobs().items == []
            lock.release()
            until(lambda: plane.app.state.context.hub.watched == 1)
            lock = RunLock(folder)
            assert not lock.alone()
            client.cancel("tiny")
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 103 and lock.alone()
    lock.release()
    found = pidfile.read(folder)
    assert found is not None and found.pid == os.getpid()


def test_a_run_uses_the_control_plane_of_a_process_that_was_first(
    folder: Path, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen none."""
    me = pidfile.Control.of_this_process(plane.url)

    def record() -> None:
        until(lambda: "already" in up_down._tail(folder / "control.log"))
        pidfile.write(folder, me)

    monkeypatch.setattr(up_down, "_ready", lambda _: True)  # this one has no dispatcher
    recorder = Thread(target=record)
    with released(pidfile.Lock(folder)) as first:
        assert first.take()
        recorder.start()
        with Borrowed(Screen()) as borrowed:
            assert borrowed._found == me and not borrowed.started
    recorder.join(PATIENCE_S)


def test_up_in_the_background_refuses_when_another_process_was_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = pidfile.Control.of_this_process("http://127.0.0.1:1")
    monkeypatch.setattr(up_down, "_start", lambda *_: (first, False))
    assert run(["up", "--detach"]) == 1
    assert "(already_running)" in (said := capsys.readouterr().err) and f"(pid {os.getpid()})" in said


def test_what_stays_in_the_foreground_prints_no_json(folder: Path) -> None:
    assert "--json goes with --detach" in shardyard("up", "--json", code=1).stderr
    assert not folder.exists()


@pytest.mark.full
def test_migrate_twice(folder: Path) -> None:
    for _ in range(2):
        assert "up to date" in shardyard("migrate").stdout


def test_a_taken_port_is_refused_when_it_was_asked_for(folder: Path) -> None:
    from shardyard.api.daemon.uvicorn_server import listen

    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        for command in ("up", "api"):
            refused = shardyard(command, "--port", str(port), code=1).stderr
            assert "choose another with --port PORT" in refused and "shardyard up" not in refused
        with listen("127.0.0.1", port) as other:
            assert other.getsockname()[1] > port


def test_a_control_plane_imports_nothing_of_the_folder_in_which_it_was_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a repository whose own tokenize.py replaces Python's. The folder may be removed later."""
    monkeypatch.setenv("SHARDYARD_DATA_DIR", os.path.relpath(folder, folder.parent))
    monkeypatch.setenv("SHARDYARD_DATABASE_URL", "sqlite+aiosqlite:///data/own.db")
    (folder.parent / "tokenize.py").write_text("raise SystemExit('of the user')")
    monkeypatch.chdir(folder.parent)
    shardyard("up", "--detach", safe=True)
    found = pidfile.read(folder)
    assert (
        found is not None
        and found.process is not None
        and found.process.cwd() == str(folder)
        and (folder / "own.db").is_file()
    )
    shardyard("down", "--yes", safe=True)


def test_run_needs_no_control_plane_to_refuse_a_bad_spec(folder: Path) -> None:
    (folder.parent / "bad.yaml").write_text(yaml.safe_dump({**TINY, "polcy": 1}))
    assert "Did you mean 'policy'?" in shardyard("run", str(folder.parent / "bad.yaml"), code=1).stderr
    assert not (folder / "control.log").exists()


@pytest.mark.full
def test_run_starts_what_it_needs_and_stops_it(folder: Path, another_plane: None) -> None:
    done = shardyard("run", "--json", str(folder.parent / "tiny.yaml"))
    job = json.loads(done.stdout)
    assert (job["state"], job["summary"]["steps"]) == ("succeeded", 5)
    assert Path(job["summary"]["checkpoint"]).is_dir()
    assert job["summary"]["unigram_loss"] > 0
    assert "step 5/5" in done.stderr
    assert pidfile.read(folder) is None
    assert ours(folder) == set()


def begun(*arguments: str) -> "subprocess.Popen[str]":
    """A command as a process of its own."""
    command = ["env", "--default-signal=INT,HUP", sys.executable, "-m", "shardyard.api.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.full
def test_a_run_that_is_terminated_stops_what_it_started(folder: Path) -> None:
    train = {**TINY["train"], "steps": 100_000, "eval": {}, "checkpoint": {"final": False}}
    (folder.parent / "long.yaml").write_text(yaml.safe_dump({**TINY, "name": "long", "train": train}))
    with begun("run", str(folder.parent / "long.yaml")) as process:
        try:
            assert process.stderr is not None
            lines = list(takewhile(lambda line: "step " not in line, process.stderr))
            assert process.poll() is None, lines
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 143, said
    assert pidfile.read(folder) is None
    assert ours(folder) == set()


@pytest.mark.full
def test_two_runs_at_once_have_one_control_plane(folder: Path) -> None:
    spec = str(folder.parent / "tiny.yaml")
    with begun("run", spec, "name=a") as first, begun("run", spec, "name=b") as second:
        try:
            printed = [process.communicate(timeout=3 * PATIENCE_S) for process in (first, second)]
        finally:
            first.kill()
            second.kill()
    assert [first.returncode, second.returncode] == [0, 0], printed
    shardyard("down")  # it stays if the one that started it was first to end
    assert ours(folder) == set()


@pytest.mark.full
def test_up_die_up_down(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    first = json.loads(shardyard("up", "--detach", "--json").stdout)
    open_to_others = [path.name for path in (folder, *folder.iterdir()) if path.stat().st_mode & 0o077]
    assert open_to_others == [] and (folder / "token").is_file()
    assert first["url"].startswith("http://127.0.0.1:")
    assert "already running" in shardyard("up", code=1).stderr
    assert "already running" in shardyard("up", "--detach", code=1).stderr
    assert json.loads(shardyard("nodes", "--json").stdout)[0]["alive"]

    train = {**TINY["train"], "steps": 100_000, "eval": {}, "checkpoint": {"final": False}}
    (folder.parent / "long.yaml").write_text(yaml.safe_dump({**TINY, "name": "long", "train": train}))
    shardyard("submit", str(folder.parent / "long.yaml"))
    with Client() as client:
        until(lambda: client.job("long").progress is not None, PATIENCE_S)
        os.kill(first["pid"], signal.SIGKILL)
        until(lambda: pidfile.read(folder) is None)
        assert "shardyard up" in shardyard("list", code=1).stderr
    second = json.loads(shardyard("up", "--detach", "--json").stdout)
    with Client() as client:
        before = client.job("long")
        assert before.progress is not None
        step = before.progress.step
        until(lambda: (client.job("long").progress or before.progress).step > step)  # type: ignore[union-attr]
        steps = [point.step for point in client.metrics("long", max_points=10_000).points]
        assert steps == sorted(set(steps))
        assert client.job("long").attempt == 1

    assert "--yes" in shardyard("down", code=1).stderr  # a job is active
    assert psutil.pid_exists(second["pid"])
    assert "1 active job" in shardyard("down", "--yes").stdout
    assert pidfile.read(folder) is None
    assert ours(folder) == set()
