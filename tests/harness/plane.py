"""A real control plane in a folder of its own: API, dispatcher, embedded Ray head."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from shardyard import Client

CLI = [sys.executable, "-m", "shardyard.api.cli"]


class Plane:
    """`shardyard up` as a user starts it, in its own short data folder (Ray's sockets need short paths)."""

    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="sy-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.given: dict[str, str] = {}  # further settings, such as those of `Nodes`

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "SHARDYARD_DATA_DIR": str(self.data), "NO_COLOR": "1", "COLUMNS": "120"} | self.given

    @property
    def storage(self) -> Path:
        """Where jobs' checkpoints lie."""
        return Path(self.given.get("SHARDYARD_STORAGE", self.data / "checkpoints"))

    def up(self) -> None:
        with (self.data / "up.log").open("ab") as log:
            self.process = subprocess.Popen([*CLI, "up"], env=self.env, stdout=log, stderr=log, start_new_session=True)
        until(self._listens, 240, f"the control plane; its log: {self.data / 'up.log'}")

    def _listens(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError((self.data / "up.log").read_text())
        try:
            control = json.loads((self.data / "control.json").read_text())
        except (FileNotFoundError, ValueError):
            return False
        if control["pid"] != self.process.pid:
            return False
        with Client(control["url"]) as client:
            return client.alive()

    def client(self) -> Client:
        return Client(json.loads((self.data / "control.json").read_text())["url"], patience_s=60)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def run(self, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments], env=self.env, capture_output=True, text=True, timeout=timeout, check=False
        )

    def processes(self) -> list[psutil.Process]:
        """Every living process that belongs to this data folder: by its environment or command line."""
        return [p for p in psutil.process_iter() if _belongs(p, str(self.data))]

    def end(self) -> None:
        if self.process is not None:  # reaped here at once: `down` would wait for what stays a zombie of ours
            self.process.terminate()
            _reap(self.process)
        self.run("down", "--force", timeout=240)
        for process in self.processes():
            process.kill()
        shutil.rmtree(self.data, ignore_errors=True)


@contextlib.contextmanager
def running_plane(**given: str) -> Iterator[Plane]:
    """A control plane that is up, with further settings. Whatever happens, nothing of it stays."""
    plane = Plane()
    plane.given.update(given)
    try:
        plane.up()
        yield plane
    finally:
        plane.end()


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _belongs(process: psutil.Process, folder: str) -> bool:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.environ().get("SHARDYARD_DATA_DIR") == folder or any(
            folder in part for part in process.cmdline()
        )
    except psutil.Error:
        return False


def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait for `condition`; returns the seconds it took."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.05)
    return time.monotonic() - started


def spec(name: str, steps: int = 20, layout: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    """A tiny Llama on the standard library's sources."""
    model = {"preset": "nano", "layers": 2, "dim": 32, "heads": 4, "kv_heads": 2, "hidden": 64}
    body = {"model": model, "data": {"seq_len": 64}, "steps": steps, "global_batch": 8, "layout": layout or {"data": 2}}
    return {"name": name, "train": {**body, **train}}
