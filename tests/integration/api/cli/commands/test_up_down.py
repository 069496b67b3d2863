"""Real processes: the control plane in the background, its death and return, jobs on its own Ray, and an end without leftovers."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
from shardyard.api.cli.commands.up_down import Borrowed
from shardyard.api.cli.main import run
from shardyard.api.cli.terminal.screen import Screen
from shardyard.api.client import Client
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
    if found is not None and found.process is not None:
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


@pytest.mark.parametrize(
    ("work", "stays"),
    [("queued", True), ("paused", False), ("sweep", True), ("ended", False), ("unread", True), ("none", False)],
)
def test_a_borrowed_control_plane_stays_for_other_work(
    work: str, stays: bool, plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
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
    with subprocess.Popen(["sleep", "300"]) as process:
        try:
            borrowed = Borrowed(Screen())
            borrowed._found = pidfile.Control(plane.url, process.pid, psutil.Process(process.pid).create_time())
            borrowed.__exit__(None, None, None)
            assert (borrowed._found.process is not None) is stays
        finally:
            process.kill()
    assert ("the control plane stays at" in capsys.readouterr().err) is stays


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
        assert "--port" in shardyard("up", "--port", str(port), code=1).stderr
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
