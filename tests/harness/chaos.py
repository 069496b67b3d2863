"""Faults as machines have them, drawn by seed and done to a running control plane and to the one job that runs on it."""

import contextlib
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from .chaos_stage import ChaosStage
from .checkpoint_corruption import flip_bit, newest_checkpoint, truncate_file
from .control_plane import ControlPlane, until
from .nodes import Node
from .patience import PATIENCE_S
from .processes import actors, trainers

FINAL = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Fault:
    """What happens, and to which of those to whom it may happen."""

    name: str
    luck: float  # 0 ≤ luck < 1

    def inject(self, stage: ChaosStage, job: str) -> bool:
        """False when the job ended before there was anything to inject it into."""
        return FAULTS[self.name](stage, job, self.luck)

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


def possible(stage: ChaosStage) -> tuple[list[str], Mapping[str, str]]:
    """The kinds that this machine can have, and why it cannot have the others."""
    impossible = {} if stage.disk else {"fill-disk": stage.no_disk}
    if stage.machines.nodes.network is None:
        impossible["cut-node"] = "network namespaces need root and `ip`"
    return [kind for kind in FAULTS if kind not in impossible], impossible


def _signal(stage: ChaosStage, job: str, find: Callable[[], list[psutil.Process]], luck: float, number: int) -> bool:
    """To one of those that are there, as soon as there is one; False when the job ends before."""

    def sent() -> bool:
        found = sorted(find(), key=lambda process: process.pid)
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            found[int(luck * len(found))].send_signal(number)
            return True
        return False

    return _unless_it_ends(stage, job, sent, "a process for the fault")


def _unless_it_ends(stage: ChaosStage, job: str, condition: Callable[[], bool], what: str) -> bool:
    """Wait until the condition holds (True) or the job has ended."""
    held = False

    def either() -> bool:
        nonlocal held
        held = condition()
        return held or _has_ended(stage.plane, job)

    until(either, PATIENCE_S, what)
    return held


def _has_ended(plane: ControlPlane, job: str) -> bool:
    with plane.client() as client:
        return client.job(job).state in FINAL


def _kill_trainer(stage: ChaosStage, job: str, luck: float) -> bool:
    return _signal(stage, job, lambda: trainers(stage), luck, signal.SIGKILL)


def _stop_trainer(stage: ChaosStage, job: str, luck: float) -> bool:
    """It lives, holds its sockets open and does nothing: its peers wait for it for ever."""
    return _signal(stage, job, lambda: trainers(stage), luck, signal.SIGSTOP)


def _kill_rank(stage: ChaosStage, job: str, luck: float) -> bool:
    """A rank actor; its trainer ends with it."""
    return _signal(stage, job, lambda: actors(stage, "Rank"), luck, signal.SIGKILL)


def _kill_supervisor(stage: ChaosStage, job: str, luck: float) -> bool:
    return _signal(stage, job, lambda: actors(stage, "Supervisor"), luck, signal.SIGKILL)


def _kill_control_plane(stage: ChaosStage, _: str, __: float) -> bool:
    """API and dispatcher at once; the harness starts them again."""
    stage.plane.kill()
    stage.plane.up()
    return True


def _restart_database(stage: ChaosStage, _: str, __: float) -> bool:
    stage.postgres.restart()
    return True


def _kill_node(stage: ChaosStage, job: str, luck: float) -> bool:
    """SIGKILL of the raylet of a machine on which ranks are; a fresh one comes."""
    return _lose_machine(stage, job, luck, stage.machines.kill) is not None


def _cut_node(stage: ChaosStage, job: str, luck: float) -> bool:
    """A machine with ranks loses its network; a fresh one comes. Every second gets it back when everybody misses it."""
    node = _lose_machine(stage, job, luck, stage.machines.pull_cable)
    if node is not None and int(luck * 1e4) % 2:
        stage.machines.plug_in(node)
    return node is not None


def _lose_machine(stage: ChaosStage, job: str, luck: float, lose: Callable[[Node], None]) -> Node | None:
    """The machine, when the control plane misses it; None when the job ended before."""
    found: list[Node] = []

    def there() -> bool:
        found[:] = stage.machines.with_one_of(actors(stage, "Rank"))
        return bool(found)

    if not _unless_it_ends(stage, job, there, "a machine with ranks"):
        return None
    node = found[int(luck * len(found))]
    lose(node)
    stage.machines.complete()
    until(lambda: _misses(stage.plane, node), PATIENCE_S, f"the loss of {node} to be noticed")
    return node


def _misses(plane: ControlPlane, node: Node) -> bool:
    with plane.client() as client:
        return not any(known.alive for known in client.nodes() if known.id == node.id)


def _flip_and_forget(stage: ChaosStage, job: str, luck: float) -> bool:
    """A byte of the newest checkpoint flips and all ranks die at once, with all that was in memory."""
    return _damage_and_forget(stage, job, luck, flip_bit)


def _cut_and_forget(stage: ChaosStage, job: str, luck: float) -> bool:
    """A file of the newest checkpoint is cut short, and all ranks die at once."""
    return _damage_and_forget(stage, job, luck, truncate_file)


def _damage_and_forget(stage: ChaosStage, job: str, luck: float, damage: Callable[[Path, float], None]) -> bool:
    found = newest_checkpoint(stage.plane, job)
    if found is not None and _is_the_end(stage, job, found):
        return False  # nothing would be trained after it, and the job may end with it as it is
    if found is not None:
        with contextlib.suppress(FileNotFoundError):  # it was just being saved again
            damage(found, luck)
    for process in [*actors(stage, "Rank"), *trainers(stage)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return True


def _is_the_end(stage: ChaosStage, job: str, checkpoint: Path) -> bool:
    with stage.plane.client() as client:
        return checkpoint.name == f"step-{client.job(job).spec['train']['steps']:08d}"


def _fill_disk(stage: ChaosStage, job: str, _: float) -> bool:
    """Until a checkpoint could not be saved; then the harness makes room."""
    disk = stage.disk
    assert disk is not None
    failed = _failed_saves(stage.plane, job)

    def full_when_saved() -> bool:
        disk.fill()  # a save that was complete already frees the room of the oldest
        return _failed_saves(stage.plane, job) > failed

    try:
        until(full_when_saved, PATIENCE_S, "a checkpoint that finds no room")
    finally:
        disk.free()
    return True


def _failed_saves(plane: ControlPlane, job: str) -> int:
    with plane.client() as client:
        return sum(incident.cause == "checkpoint_failed" for incident in client.incidents(job).items)


FAULTS: dict[str, Callable[[ChaosStage, str, float], bool]] = {
    "kill-trainer": _kill_trainer,
    "stop-trainer": _stop_trainer,
    "kill-rank": _kill_rank,
    "kill-supervisor": _kill_supervisor,
    "kill-control-plane": _kill_control_plane,
    "restart-database": _restart_database,
    "flip-and-forget": _flip_and_forget,
    "cut-and-forget": _cut_and_forget,
    "fill-disk": _fill_disk,
    "kill-node": _kill_node,
    "cut-node": _cut_node,
}

#: Checkpoints' interval in the jobs of chaos.
SAVE_EVERY = 20
#: Room must be made before the last checkpoint, which may not fail; some saves before that will.
NEEDS = {"fill-disk": 4 * SAVE_EVERY}
