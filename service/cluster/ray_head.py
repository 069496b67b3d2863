"""The embedded Ray head: processes of their own on loopback, which outlive the control plane and which it finds again.

- `cluster.json` is written before and after a start. So an interrupted start is cleared away, a living head is adopted, and a stray
  cluster on the machine never is.
- A process holds a file lock while it starts, adopts or ends the head.
- Every process that the head starts has `SHARDYARD_NODE`, the head's own folder, in its environment. Ending the head means killing
  exactly those, by process id, until none is left.
- All its ports are free ones of the loopback interface, and its token is in a file that only this user can read.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil

from ...workers.atomic_files import write_whole
from ...workers.forkserver import client as forkserver
from ...workers.forkserver.protocol import adopt
from ...workers.process_stat import boot_id, started_at
from ...workers.rank.actor import Rank
from ...workers.rank.host import NODE_FOLDER
from ...workers.supervisor.actor import Supervisor
from ..policies.warm_workers import Workers

LOOPBACK: Final = "127.0.0.1"
START_S: Final = 90.0
END_S: Final = 20.0
#: A UNIX socket's path has at most 107 bytes; Ray puts about 66 of its own below its temporary folder, `FOLDER/r`.
LONGEST_FOLDER: Final = 107 - 70
OBJECT_STORE_BYTES: Final = 128 << 20
#: Ray workers that may start at once, and that may idle: a gang starts fast in idle workers.
MOST_STARTING: Final = 16
MOST_IDLE: Final = 32
#: Ray gives workers the lowest priority but four: beside trainers on all cores one may take long to start.
START_WORKER_S: Final = 300
#: Imported by idle workers before they become an actor: otherwise Ray would import most of it for an actor's first answer.
WARM_MODULES: Final = (
    "numpy",
    "psutil",
    "pyarrow.json",
    "ray._common.pydantic_compat",
    "ray._private.arrow_serialization",
    "ray.util.placement_group",
    "ray.util.scheduling_strategies",
    "starlette.datastructures",
    Supervisor.__module__,
)


@dataclass(frozen=True)
class Process:
    """Identifies a process certainly: its id, and when it started, in clock ticks since boot."""

    pid: int
    started: int


@dataclass(frozen=True)
class Record:
    """The content of `cluster.json`. Without an address: a process has begun to start the head."""

    folder: str  # private; also the mark of every process of this head
    boot: str
    address: str | None = None
    raylet: Process | None = None
    gcs: Process | None = None
    code: str = ""  # fingerprint of the code that its idle workers have imported


class HeadError(RuntimeError):
    """Ray's own processes did not start; the message holds the output of `ray start`."""


class Head:
    """The embedded head of one data folder. All methods block, and are safe between processes."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.file = data_dir / "cluster.json"
        self.token = data_dir / "ray.token"

    def ensure(self) -> Record:
        """The living head, or a new one. Raises HeadError."""
        with self._lock():
            record = self._read()
            if record and lives(record):
                return self._renew(record)
            if record:
                self._clear(record)
            try:
                return self._start()
            except HeadError:  # its port was free when it was chosen, and may be taken by now
                return self._start()

    def warm_fork_server(self, record: Record) -> None:
        """Make sure that trainers of today's code can be forked at once."""
        assert record.raylet
        folder = Path(record.folder)
        with forkserver.connect(folder, record.raylet.pid, self._marked_environment(folder)):
            pass

    def shut_down(self) -> None:
        """End the head and all processes that it started. Harmless when there is none."""
        if not self.data_dir.is_dir():
            return
        with self._lock():
            record = self._read()
            if record:
                self._clear(record)

    def environment(self) -> dict[str, str]:
        """The environment variables that Ray's command and its drivers must have."""
        return {
            "RAY_AUTH_MODE": "token",  # set explicitly: without it, Ray's default depends on how it was started
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray replaces 127.0.0.1 by the machine's outer address and listens there, unless this variable declares that
            # the cluster has only one machine. This head is for one machine, so it stays on loopback.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            # A driver would end its own process when the GCS has been gone for a minute: the control plane must not.
            "RAY_gcs_rpc_server_reconnect_timeout_s": "1000000",
        }

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.data_dir / "cluster.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> Record | None:
        try:
            data = json.loads(self.file.read_text())
            for name in ("raylet", "gcs"):
                data[name] = Process(**data[name]) if data[name] else None
            return Record(**data)
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def _write(self, record: Record) -> None:
        write_whole(self.file, [json.dumps(asdict(record)).encode()])

    def _renew(self, record: Record) -> Record:
        """Adopt a living head, and kill its idle workers that have imported another version of our code: the next gang would run it."""
        code = forkserver.fingerprint()
        if record.code == code:
            return record
        assert record.raylet
        for worker in idle_workers(record.raylet.pid):
            with contextlib.suppress(psutil.Error):
                worker.kill()
        record = replace(record, code=code)
        self._write(record)
        return record

    def _start(self) -> Record:
        folder = self._make_folder()
        record = Record(str(folder), boot_id(), code=forkserver.fingerprint())
        self._write(record)
        self._make_token()
        try:
            record = self._start_ray(record, folder, self._marked_environment(folder))
        except (OSError, subprocess.TimeoutExpired, forkserver.ForkError, HeadError) as error:
            self._clear(record)
            raise HeadError(f"Ray did not start: {error}") from error
        self._write(record)
        return record

    def _start_ray(self, record: Record, folder: Path, env: dict[str, str]) -> Record:
        """Start Ray and the fork server side by side. The raylet adopts the fork server once it runs."""
        port = _free_port()
        with forkserver.connect(folder, os.getpid(), env) as fork:
            started = subprocess.run(
                _command(folder, port),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=START_S,
                check=False,
            )
            found = _found(str(folder))
            if started.returncode or not {"raylet", "gcs_server"} <= found.keys():
                raise HeadError(started.stdout.decode("utf-8", "replace")[-4000:])
            adopt(fork, found["raylet"].pid)
        return replace(record, address=f"{LOOPBACK}:{port}", raylet=found["raylet"], gcs=found["gcs_server"])

    def _marked_environment(self, folder: Path) -> dict[str, str]:
        """Our environment with the head's mark, without variables of other clusters and secrets (a database's password)."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SHARDYARD_"))}
        tuning = {
            "SPT_NOENV": "1",  # Ray's workers set their titles; without this, they overwrite their environment and so our mark
            "RAY_START_HOOK": f"{__name__}.adjust",
            "RAY_num_workers_soft_limit": str(MOST_IDLE),
            "RAY_worker_maximum_startup_concurrency": str(MOST_STARTING),
            "RAY_worker_register_timeout_seconds": str(START_WORKER_S),
            # Ray's metrics of itself are not used, and take processor time from the trainers.
            "RAY_enable_metrics_collection": "0",
            "RAY_task_events_report_interval_ms": "0",
            "REPORTER_UPDATE_INTERVAL_MS": "60000",
            "RAY_preload_python_modules": ",".join(WARM_MODULES),
        }
        return env | self.environment() | tuning | {NODE_FOLDER: str(folder)}

    def _make_folder(self) -> Path:
        """Make the head's folder below the data folder.

        If that path is too long for a socket, it is a short one that the data folder links to.
        """
        own = self.data_dir / "ray"
        if own.is_symlink():
            own.unlink()
        if len(os.fsencode(own)) <= LONGEST_FOLDER:
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir(mode=0o700)
            return own
        folder = Path(tempfile.mkdtemp(prefix="shardyard-", dir="/tmp"))
        own.symlink_to(folder)
        return folder

    def _make_token(self) -> None:
        self.token.unlink(missing_ok=True)
        fd = os.open(self.token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(32))

    def _clear(self, record: Record) -> None:
        """Kill all processes with the head's mark, until there is none; then remove its folder."""
        deadline = time.monotonic() + END_S
        doomed: set[Process] = set()
        # A process that is ending has no environment any more, so those that were seen once are waited for too.
        while alive := {process for process in doomed | marked(record.folder) if _process(process.pid) == process}:
            if time.monotonic() > deadline:
                raise HeadError(f"these processes of Ray do not end: {sorted(process.pid for process in alive)}")
            for process in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            doomed = alive
            time.sleep(0.02)
        shutil.rmtree(record.folder, ignore_errors=True)
        own = self.data_dir / "ray"
        if own.is_symlink():
            own.unlink()
        self.token.unlink(missing_ok=True)
        self.file.unlink(missing_ok=True)


def adjust(parameters: Any, head: bool) -> None:
    """Called by `ray start` (RAY_START_HOOK) before it starts anything: no server for Ray clients, no fixed ports."""
    assert head
    parameters.ray_client_server_port = None
    parameters.dashboard_agent_listen_port = 0


def _command(folder: Path, port: int) -> list[str]:
    ray = Path(sys.executable).with_name("ray")
    return [
        *([str(ray)] if ray.exists() else [sys.executable, "-m", "ray.scripts.scripts"]),
        "start",
        "--head",
        f"--node-ip-address={LOOPBACK}",
        f"--port={port}",
        f"--temp-dir={folder / 'r'}",  # Ray opens this folder to all users
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--include-dashboard=false",
        "--include-log-monitor=false",
        "--no-monitor",
        "--disable-usage-stats",
        "--log-style=record",
        "--log-color=false",
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def lives(record: Record) -> bool:
    """Whether both of the head's processes are the recorded ones, in this boot of the machine."""
    wanted = (record.raylet, record.gcs)
    return record.boot == boot_id() and all(p is not None and _process(p.pid) == p for p in wanted)


def _process(pid: int) -> Process | None:
    """The process; None when it is gone, and when it is a zombie that was not reaped."""
    started = started_at(pid)
    return None if started is None else Process(pid, started)


def idle_workers(raylet: int) -> list[psutil.Process]:
    """Workers of this raylet that are not in use: idle ones, by the title that Ray gives them, and starting ones."""
    return _workers(raylet, "ray::IDLE", "default_worker.py")


def starting_workers(raylet: int) -> list[psutil.Process]:
    """Workers of this raylet that still import their modules."""
    return _workers(raylet, "default_worker.py")


def rank_workers(raylet: int) -> list[psutil.Process]:
    """Workers of this raylet that are ranks of a gang."""
    return _workers(raylet, f"ray::{Rank.__name__}")


def _workers(raylet: int, *titles: str) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(raylet).children():
            with contextlib.suppress(psutil.Error):
                if any(title in " ".join(child.cmdline()) for title in titles):
                    found.append(child)
    return found


def marked(folder: str) -> set[Process]:
    """Processes with the head's mark in their environment, except zombies and this process."""
    mark = f"{NODE_FOLDER}={folder}\0".encode()
    processes = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                process = _process(int(entry.name))
                if process and mark in (entry / "environ").read_bytes() + b"\0":
                    processes.add(process)
    return processes


def _found(folder: str) -> dict[str, Process]:
    """The head's marked processes by the name of their program."""
    found = {}
    for process in marked(folder):
        with contextlib.suppress(OSError):
            program = Path(f"/proc/{process.pid}/cmdline").read_bytes().partition(b"\0")[0]
            found[Path(os.fsdecode(program)).name] = process
    return found


def count_workers(raylet: int) -> Workers:
    """The numbers of this raylet's workers, by kind."""
    starting = len(starting_workers(raylet))
    return Workers(len(idle_workers(raylet)) - starting, starting, len(rank_workers(raylet)))
