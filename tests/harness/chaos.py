"""Faults as machines have them, drawn by seed and done to a running control plane and to the one job that runs on it."""

import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from .plane import Plane, until


@dataclass(frozen=True)
class Fault:
    """What happens, and to which of those to whom it may happen."""

    name: str
    luck: float  # 0 ≤ luck < 1

    def strike(self, plane: Plane, job: str) -> None:
        FAULTS[self.name](plane, job, self.luck)

    def __str__(self) -> str:
        return f"{self.name} ({self.luck:.3f})"


def drawn(seed: int, count: int) -> list[Fault]:
    """`count` faults; every kind comes once before one comes twice."""
    dice, faults = random.Random(seed), list[Fault]()
    while len(faults) < count:
        kinds = dice.sample(sorted(FAULTS), len(FAULTS))
        faults += [Fault(kind, dice.random()) for kind in kinds]
    return faults[:count]


def trainers(plane: Plane) -> list[psutil.Process]:
    """The fork server's children: they have its command line."""
    servers = [p for p in plane.processes() if "shardyard.workers.forkserver" in _command(p)]
    return [p for p in servers if p.ppid() in {server.pid for server in servers}]


def actors(plane: Plane, kind: str) -> list[psutil.Process]:
    """The raylet's children that are actors of one class: their title says so, and hides whose they are."""
    children = [child for p in plane.processes() if "raylet" in " ".join(_command(p)[:1]) for child in p.children()]
    return [child for child in children if " ".join(_command(child)).startswith(f"ray::{kind}")]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _one(find: Callable[[], list[psutil.Process]], luck: float) -> psutil.Process:
    """One of those that are there as soon as one is."""
    found: list[psutil.Process] = []
    until(lambda: bool(found.extend(find()) or found), 60, "a process to strike")  # type: ignore[func-returns-value]
    ordered = sorted(found, key=lambda process: process.pid)
    return ordered[int(luck * len(ordered))]


def _kill_trainer(plane: Plane, _: str, luck: float) -> None:
    _one(lambda: trainers(plane), luck).kill()


def _stop_trainer(plane: Plane, _: str, luck: float) -> None:
    """It lives, holds its sockets open and does nothing: its peers wait for it for ever."""
    _one(lambda: trainers(plane), luck).send_signal(signal.SIGSTOP)


def _kill_rank(plane: Plane, _: str, luck: float) -> None:
    """A rank actor; its trainer ends with it."""
    _one(lambda: actors(plane, "Rank"), luck).kill()


def _kill_supervisor(plane: Plane, _: str, luck: float) -> None:
    _one(lambda: actors(plane, "Supervisor"), luck).kill()


def _kill_control_plane(plane: Plane, _: str, __: float) -> None:
    """API and dispatcher at once; somebody starts them again."""
    plane.kill()
    plane.up()


def _flip_and_forget(plane: Plane, job: str, luck: float) -> None:
    """A byte of the newest checkpoint flips and all ranks die at once, with all that was in memory."""
    found = newest_checkpoint(plane, job)
    if found is not None:
        flip(found, luck)
    for process in [*actors(plane, "Rank"), *trainers(plane)]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def newest_checkpoint(plane: Plane, job: str) -> Path | None:
    manifests = sorted(plane.data.glob(f"**/{job}/step-*/manifest.json"))
    return manifests[-1].parent if manifests else None


def flip(checkpoint: Path, luck: float) -> None:
    """Flip a bit of one of its files."""
    files = sorted(file for file in checkpoint.iterdir() if file.is_file() and file.stat().st_size)
    file = files[int(luck * len(files))]
    content = bytearray(file.read_bytes())
    content[int(luck * 7919) % len(content)] ^= 1 << int(luck * 8)
    file.write_bytes(content)


FAULTS: dict[str, Callable[[Plane, str, float], None]] = {
    "kill-trainer": _kill_trainer,
    "stop-trainer": _stop_trainer,
    "kill-rank": _kill_rank,
    "kill-supervisor": _kill_supervisor,
    "kill-control-plane": _kill_control_plane,
    "flip-and-forget": _flip_and_forget,
}


def strike_all(
    plane: Plane, job: str, faults: Iterator[Fault], most: int, step: Callable[[], int | None]
) -> list[Fault]:
    """Up to `most` faults, each when the job has got on since the last one. `step()`: the job's newest, None when it has ended."""
    struck: list[Fault] = []
    since = 0
    while len(struck) < most:
        until(lambda since=since: (now := step()) is None or now > since, 120, f"a step after {struck}")  # type: ignore[misc]
        now = step()
        fault = next(faults, None) if now is not None else None
        if now is None or fault is None:
            break
        fault.strike(plane, job)
        struck.append(fault)
        since = now + 3
    return struck
