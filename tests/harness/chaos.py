"""Faults as machines have them, drawn by seed and done to a running control plane and to the one job that runs on it."""

import contextlib
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from .plane import Plane, until
from .stage import Stage


@dataclass(frozen=True)
class Fault:
    """What happens, and to which of those to whom it may happen."""

    name: str
    luck: float  # 0 ≤ luck < 1

    def strike(self, stage: Stage, job: str) -> None:
        FAULTS[self.name](stage, job, self.luck)

    @property
    def needs(self) -> int:
        """So many steps must be left to the job."""
        return NEEDS.get(self.name, 0)

    def __str__(self) -> str:
        return f"{self.name}:{self.luck:.4f}"

    @classmethod
    def parse(cls, text: str) -> "Fault":
        name, _, luck = text.partition(":")
        return cls(name, float(luck))


def drawn(seed: int, count: int, kinds: Sequence[str]) -> list[Fault]:
    """`count` faults; every kind comes once before one comes twice."""
    dice, faults = random.Random(seed), list[Fault]()
    while len(faults) < count:
        faults += [Fault(kind, round(dice.random(), 4)) for kind in dice.sample(sorted(kinds), len(kinds))]
    return faults[:count]


def possible(stage: Stage) -> tuple[list[str], Mapping[str, str]]:
    """The kinds that this machine can have, and why it cannot have the others."""
    impossible = {} if stage.disk else {"fill-disk": stage.no_disk}
    return [kind for kind in FAULTS if kind not in impossible], impossible


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


def _signal(find: Callable[[], list[psutil.Process]], luck: float, number: int = signal.SIGKILL) -> None:
    """To one of those that are there, as soon as there is one."""

    def sent() -> bool:
        found = sorted(find(), key=lambda process: process.pid)
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            found[int(luck * len(found))].send_signal(number)
            return True
        return False

    until(sent, 240, "a process to strike")


def _kill_trainer(stage: Stage, _: str, luck: float) -> None:
    _signal(lambda: trainers(stage.plane), luck)


def _stop_trainer(stage: Stage, _: str, luck: float) -> None:
    """It lives, holds its sockets open and does nothing: its peers wait for it for ever."""
    _signal(lambda: trainers(stage.plane), luck, signal.SIGSTOP)


def _kill_rank(stage: Stage, _: str, luck: float) -> None:
    """A rank actor; its trainer ends with it."""
    _signal(lambda: actors(stage.plane, "Rank"), luck)


def _kill_supervisor(stage: Stage, _: str, luck: float) -> None:
    _signal(lambda: actors(stage.plane, "Supervisor"), luck)


def _kill_control_plane(stage: Stage, _: str, __: float) -> None:
    """API and dispatcher at once; somebody starts them again."""
    stage.plane.kill()
    stage.plane.up()


def _restart_database(stage: Stage, _: str, __: float) -> None:
    stage.postgres.restart()


def _flip_and_forget(stage: Stage, job: str, luck: float) -> None:
    """A byte of the newest checkpoint flips and all ranks die at once, with all that was in memory."""
    _damage_and_forget(stage.plane, job, luck, flip)


def _cut_and_forget(stage: Stage, job: str, luck: float) -> None:
    """A file of the newest checkpoint is cut short, and all ranks die at once."""
    _damage_and_forget(stage.plane, job, luck, cut)


def _damage_and_forget(plane: Plane, job: str, luck: float, damage: Callable[[Path, float], None]) -> None:
    found = newest_checkpoint(plane, job)
    if found is not None:
        with contextlib.suppress(FileNotFoundError):  # it was just being saved anew
            damage(found, luck)
    for process in [*actors(plane, "Rank"), *trainers(plane)]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _fill_disk(stage: Stage, job: str, _: float) -> None:
    """Until a checkpoint could not be saved; then somebody makes room."""
    assert stage.disk is not None
    failed = _failed_saves(stage.plane, job)
    stage.disk.fill()
    try:
        until(lambda: _failed_saves(stage.plane, job) > failed, 240, "a checkpoint that finds no room")
    finally:
        stage.disk.free()


def _failed_saves(plane: Plane, job: str) -> int:
    with plane.client() as client:
        return sum(incident.cause == "checkpoint_failed" for incident in client.incidents(job).items)


def newest_checkpoint(plane: Plane, job: str) -> Path | None:
    manifests = sorted((plane.storage / job).glob("step-*/manifest.json"))
    return manifests[-1].parent if manifests else None


def flip(checkpoint: Path, luck: float) -> None:
    """Flip a bit of one of its files."""
    file = _a_file(checkpoint, luck)
    content = bytearray(file.read_bytes())
    content[_place(luck, len(content))] ^= 1 << int(luck * 8)
    file.write_bytes(content)


def cut(checkpoint: Path, luck: float) -> None:
    """Cut one of its files short."""
    file = _a_file(checkpoint, luck)
    os.truncate(file, _place(luck, file.stat().st_size))


def _place(luck: float, size: int) -> int:
    return int(luck * 1e9) % size


def _a_file(checkpoint: Path, luck: float) -> Path:
    files = sorted(file for file in checkpoint.iterdir() if file.is_file() and file.stat().st_size)
    return files[int(luck * len(files))]


FAULTS: dict[str, Callable[[Stage, str, float], None]] = {
    "kill-trainer": _kill_trainer,
    "stop-trainer": _stop_trainer,
    "kill-rank": _kill_rank,
    "kill-supervisor": _kill_supervisor,
    "kill-control-plane": _kill_control_plane,
    "restart-database": _restart_database,
    "flip-and-forget": _flip_and_forget,
    "cut-and-forget": _cut_and_forget,
    "fill-disk": _fill_disk,
}

#: Checkpoints' interval in the jobs of chaos.
SAVE_EVERY = 20
#: Room must be made before the last checkpoint, which may not fail; some saves before that will.
NEEDS = {"fill-disk": 4 * SAVE_EVERY}
