"""A real control plane in a folder of its own: API, dispatcher, embedded Ray head."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil

from shardyard import Client
from shardyard.api.client import FINAL, ApiError

from .patience import PATIENCE_S

CLI = [sys.executable, "-m", "shardyard.api.cli"]


class ControlPlane:
    """`shardyard up` as a user starts it, in its own short data folder (Ray's sockets need short paths)."""

    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="sy-"))
        self.process: subprocess.Popen[bytes] | None = None
        #: Further settings, such as those of `Nodes`. The port stays when it is started again, so that open pages find it.
        self.given: dict[str, str] = {"SHARDYARD_PORT": str(_own_port())}

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
        until(self._listens, PATIENCE_S, f"the control plane; its log: {self.data / 'up.log'}")

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

    @property
    def token(self) -> str:
        """The access token, which the control plane has made at its first start."""
        return (self.data / "token").read_text().strip()

    def client(self) -> Client:
        url = json.loads((self.data / "control.json").read_text())["url"]
        return Client(url, token=self.token, patience_s=PATIENCE_S)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def run(self, *arguments: str, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
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
        self.run("down", "--force", timeout=PATIENCE_S)
        for process in self.processes():
            process.kill()
        shutil.rmtree(self.data, ignore_errors=True)


@contextlib.contextmanager
def running_control_plane(**given: str) -> Iterator[ControlPlane]:
    """A control plane that takes jobs, with further settings. Whatever happens, nothing of it stays."""
    plane = ControlPlane()
    plane.given.update(given)
    try:
        plane.up()
        with plane.client() as client:
            until(lambda: _ready(client), PATIENCE_S, "a ready control plane")
        yield plane
    finally:
        plane.end()


def _ready(client: Client) -> bool:
    """A server may close a connection just when a slow machine asks through it again: that is no answer."""
    with contextlib.suppress(httpx2.TransportError):
        return client.readiness().status == "ready"
    return False


def all_ended(client: Client) -> bool:
    """Whether no job is left; those that are, are cancelled."""
    left = [job for job in client.jobs(limit=200).items if job.state not in FINAL]
    for job in left:
        with contextlib.suppress(ApiError):  # it may have ended by itself
            client.cancel(job.id)
    return not left


def _own_port() -> int:
    """One that no other control plane takes meanwhile: those look from 8400 on, Ray's workers between 10002 and 19999, and outgoing
    connections take what is above 32768.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE_S)


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


def endless(name: str, steps: int = 1_000_000, **train: Any) -> dict[str, Any]:
    """`spec`, for more steps than a test waits for, so that no fault comes too late. A run of fewer `steps` has the same losses."""
    same = {"schedule": {"name": "constant"}, "eval": {"batches": 1}, "checkpoint": {"final": False}}
    return spec(name, steps=steps, **{**same, **train})


def trained(client: Client, job: str, steps: int, attempt: int | None = None) -> None:
    """Wait until the job has stored this many further steps, in this attempt where it is given. Fails when it ends before."""

    def newest() -> int:
        found = client.job(job)
        assert found.state not in FINAL, f"{found.state}: {found.message}"
        return found.progress.step if found.progress and (attempt is None or found.attempt == attempt) else 0

    until(lambda: attempt is None or client.job(job).attempt == attempt, PATIENCE_S, f"attempt {attempt}")
    wanted = newest() + steps
    until(lambda: newest() >= wanted, PATIENCE_S, f"{steps} steps more of {job}")
