"""The address of a data folder's control plane: `control.json`, valid only while the process that wrote it is alive."""

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import psutil

from ..workers.process_stat import boot_id, started_at

DEFAULT_URL = "http://127.0.0.1:8400"
#: Tries to take the lock, and seconds after each: `Lock.is_taken` of another process holds it for a moment.
_TRIES: Final = 5
_PAUSE_S: Final = 0.02


@dataclass(frozen=True)
class Control:
    """A control plane: its address and its process, with when that started, because pids are reused.

    `started`: in unix seconds. Earlier versions compare and record only this, which follows the steps of the clock.
    `token_path`: the file with its access token; None if its settings have the token's text.
    `ticks`, `boot`: the start in clock ticks since the boot, and which boot; None if an earlier version has written the record.
    """

    url: str
    pid: int
    started: float
    token_path: str | None = None
    ticks: int | None = None
    boot: str | None = None

    @classmethod
    def of_this_process(cls, url: str, token_path: str | None = None) -> Self:
        pid = os.getpid()
        return cls(url, pid, psutil.Process().create_time(), token_path, started_at(pid), boot_id())

    @property
    def process(self) -> psutil.Process | None:
        """The process itself; None when it has ended or its number belongs to another process now."""
        try:
            process = psutil.Process(self.pid)
            return process if self._is(process) and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.Error, OSError):
            return None

    def _is(self, process: psutil.Process) -> bool:
        if self.ticks is None:
            return abs(process.create_time() - self.started) < 2.0
        return self.boot == boot_id() and self.ticks == started_at(self.pid)


def read(data_dir: Path) -> Control | None:
    """The running control plane of a data folder, or None."""
    try:
        record = json.loads((data_dir / "control.json").read_text())
        token_path, ticks = record.get("token_path"), record.get("ticks")
        control = Control(
            str(record["url"]),
            int(record["pid"]),
            float(record["started"]),
            token_path and str(token_path),
            ticks and int(ticks),
            record.get("boot"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return control if control.process else None


def write(data_dir: Path, control: Control) -> None:
    """Record the address of this control plane. A reader sees the old record or the new one, never half of it."""
    path = data_dir / "control.json"
    draft = path.with_suffix(f".{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(json.dumps(asdict(control)))
    draft.replace(path)


def remove(data_dir: Path, control: Control) -> None:
    """Remove the record, unless another control plane has written its own since."""
    if read(data_dir) == control:
        (data_dir / "control.json").unlink(missing_ok=True)


class Lock:
    """At most one control plane per data folder: a file lock that the kernel releases when its holder dies."""

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = (data_dir / "control.lock").open("a")

    def take(self) -> bool:
        """Try to take the lock. Returns whether this process holds it now."""
        return any(self._tried(fcntl.LOCK_EX) for _ in range(_TRIES))

    @classmethod
    def is_taken(cls, data_dir: Path) -> bool:
        """Whether a control plane holds the lock of the data folder."""
        lock = cls(data_dir)
        try:
            return not lock._tried(fcntl.LOCK_SH)
        finally:
            lock.release()

    def _tried(self, how: int) -> bool:
        try:
            fcntl.flock(self._file, how | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_PAUSE_S)
            return False
        return True

    def release(self) -> None:
        self._file.close()
