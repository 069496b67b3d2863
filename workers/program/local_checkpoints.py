"""Checkpoints of a program that runs outside a job, in a local folder, in the same format as in a job.

Ranks that save together meet in a file below the folder, under a lock that the kernel drops with its process. They are of one start, on
one machine. What a process resumes from is copied to a folder of its own, which ends with it; the next `resume`, or the end of a
local run, removes those of killed processes.
"""

import atexit
import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from ..atomic_files import write_whole
from ..checkpoint.errors import CheckpointAbsent, CheckpointCorrupt, CheckpointError
from ..checkpoint.program_files import (
    MOST_STEP,
    Part,
    SavedByProgram,
    Source,
    fetch,
    publish,
    read_program,
    sources,
    write_part,
)
from ..checkpoint.retention import complete
from ..checkpoint.retention import folder as folder_of
from ..locked_folder import of_this_host, open_locked, remove_unused
from ..process_stat import TICKS, started_at
from ..storage.local_folder import LocalFolder
from .report_socket import LOCAL
from .shared_folder import TRY_S

#: Python's handler of a signal.
Handler = Callable[[int, FrameType | None], Any]

#: As many as a job keeps by default.
KEEP: Final = 2
#: Variables by which the ranks of a start find each other. A port, and the id that torchrun gives, may be those of an earlier start.
_SHARED: Final = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
#: How the names of folders with copies begin.
_COPIES: Final = "shardyard-resumed-"


def answer(folder: Path, request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    """Save to `folder`, or resume from it; the answer is that of `CheckpointService.answer`."""
    try:
        if "save" in request:
            return _save(folder, request["save"], handles)
        return _resume(folder, request["resume"]["rank"])
    except (CheckpointError, OSError) as error:
        return {"error": str(error)}


def _save(folder: Path, request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    step, root = request["step"], LocalFolder(str(folder))
    if not 0 <= step <= MOST_STEP:
        raise CheckpointError(f"step is {step}; a step is between 0 and {MOST_STEP:,}.")
    if request["every"] and _is_over_several_nodes():
        remedy = "save with ranks='one', or submit the script as a job"
        raise CheckpointError(f"outside a job the ranks of several nodes cannot save together; {remedy}.")
    files = [Source(request["path"], handles[0])] if handles else sources(Path(request["path"]))
    path = folder_of(root, step)
    part = write_part(path, _number("RANK", 0), files)
    with _locked(folder):
        parts = _gathered(folder, step, part) if request["every"] else [part]
        if parts is not None:
            publish(root, step, request["kind"], parts, KEEP, ())
    return {"path": str(path)}


def _gathered(folder: Path, step: int, part: Part) -> list[Part] | None:
    """The parts of all ranks, if this is the last. Those of another start of the ranks do not count."""
    run, began = _run(), _began()
    file = folder / f".parts-{step}.json"
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    first = known.get("first", 0.0)
    parts = known["parts"] if known.get("run") == run and first >= began else {}
    if not parts:
        first = time.clock_gettime(time.CLOCK_BOOTTIME)
    parts[str(part.rank)] = part.to_json()
    if len(parts) < _number("WORLD_SIZE", 1):
        write_whole(file, [json.dumps({"run": run, "first": first, "parts": parts}).encode()])
        return None
    file.unlink(missing_ok=True)
    return [Part.from_json(parts[rank]) for rank in sorted(parts, key=int)]


def _is_over_several_nodes() -> bool:
    """Whether the ranks are on several nodes, whose clocks differ: none would know which parts are of this start."""
    world = _number("WORLD_SIZE", 1)
    return LOCAL not in os.environ and _number("LOCAL_WORLD_SIZE", world) < world


def _run() -> str:
    """A name of the start of the ranks, the same on all."""
    # A launcher may start each rank by a shell, so that their parents differ.
    shared = "-".join(os.environ[name] for name in _SHARED if os.environ.get(name))
    return f"{os.environ.get(LOCAL) or shared or _parent()}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _began() -> float:
    """When this process started, in seconds since the boot; 0 where the run's name is never used again.

    A script or a notebook may start ranks again and again, with the same port. Ranks that train together save when all have started.
    """
    if LOCAL not in os.environ:
        with contextlib.suppress(OSError):  # a system without /proc
            return (started_at(os.getpid()) or 0) / TICKS
    return 0.0


def _parent() -> str:
    """A name of the process that has started this one. In a container a launcher may have the same id at each start."""
    parent, started, boot = os.getppid(), None, ""
    with contextlib.suppress(OSError):  # a system without /proc
        started, boot = started_at(parent), Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{parent}-{started}-{boot}"


def _resume(folder: Path, rank: int | None) -> dict[str, Any]:
    for path in complete(LocalFolder(str(folder))):
        try:
            saved = read_program(path)
            part = saved.part(rank, _number("RANK", 0))
            place = _copied(saved, part)
        except CheckpointCorrupt:
            continue
        except CheckpointAbsent:  # another process has saved a newer one meanwhile
            return _resume(folder, rank)
        parts = sorted(saved.parts)
        return {"step": saved.step, "path": str(place), "kind": saved.kind, "rank": part, "ranks": parts}
    return {"step": None}


def _copied(saved: SavedByProgram, part: int) -> Path:
    """The files with the program's names, until the process ends. They are copied once."""
    place = (
        _copies(os.getpid()) / f"{folder_of(LocalFolder(''), saved.step).name}-{saved.manifest.sha256[:16]}-{part:05d}"
    )
    if not place.exists():
        fetch(saved, part, place)
    return place


@functools.cache
def _copies(process: int) -> Path:
    """The folder of a process's copies. A process that was forked has another one."""
    folder, _ = open_locked(of_this_host(_COPIES))  # locked until the process ends

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def remove_copies() -> None:
    """Remove the copies of processes that have ended, which a killed one leaves."""
    remove_unused(of_this_host(_COPIES))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder for the block. A signal's handler may save, too: it runs before or after, as it would wait for this lock for ever."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        while True:
            with _handlers_deferred():
                if _is_locked(file):
                    try:
                        yield
                    finally:
                        fcntl.flock(file, fcntl.LOCK_UN)
                    return
            time.sleep(TRY_S)


def _is_locked(file: IO[str]) -> bool:
    """Lock it, unless another process has. Whether it is locked here."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextlib.contextmanager
def _handlers_deferred() -> Iterator[None]:
    """Python's handlers of signals that arrive in the block run at its end. They run on the main thread, so others' blocks defer none."""
    arrived: dict[int, FrameType | None] = {}

    def note(number: int, frame: FrameType | None) -> None:
        arrived[number] = frame

    with contextlib.ExitStack() as at_end:
        # Masks do not defer them: the kernel then lets another thread of the process take the signal, and Python runs its handler.
        on_main = threading.current_thread() is threading.main_thread()
        for number in signal.valid_signals() if on_main else ():
            if callable(handler := signal.getsignal(number)):
                at_end.callback(_run_late, handler, number, arrived)
                at_end.callback(signal.signal, number, handler)
                signal.signal(number, note)
        yield


def _run_late(handler: Handler, number: int, arrived: dict[int, FrameType | None]) -> None:
    if number in arrived:
        handler(number, arrived[number])


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else default
