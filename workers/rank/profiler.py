"""Takes profiles of this rank's Python processes, and stores each as a file of the job: with py-spy, or by the trainer itself.

Rules that it keeps: py-spy reads the processes' memory, and they are not stopped, and run none of our code; one profile at a time; one id
is one profile, however often it is requested; its time and its size are bounded. Values of variables are not read; py-spy adds the
processes' command lines, in which secrets are masked. Needs neither Ray nor torch.
"""

import asyncio
import contextlib
import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..locked_folder import locked_folder, of_this_host
from ..messages.artifact import Artifact
from ..messages.profile_request import RECORDED, Profile
from ..storage.open_folder import folder_at
from . import process_tree
from .idempotent_tasks import IdempotentTasks
from .recordings import NotRecorded
from .secret_mask import SecretMask

#: Maximum number of processes whose stacks are in one profile.
MOST_PROCESSES: Final = 16
#: Samples per second of a `cpu` profile.
RATE_HZ: Final = 100
#: Seconds for py-spy beyond those of the profile, on a busy machine.
PATIENCE_S: Final = 60.0
#: Bytes of a rank's stacks in an incident.
MOST_TEXT: Final = 8_000
#: A process or a thread in py-spy's text, with its number.
_NUMBERS: Final = re.compile(r"^(Process|Thread) (?:0x[0-9A-Fa-f]+|\d+)", re.MULTILINE)
#: Seconds for the stacks of all processes.
STACKS_S: Final = 180.0
#: Stacks of a process that changes them meanwhile are read again.
_TRIES: Final = 3
#: Bytes of a recording before it is compressed.
MOST_RECORDED: Final = 1 << 30
#: Name of the folders of profiles. An actor that is killed leaves its own.
_FOLDER: Final = "shardyard-profile-"
_ENDINGS: Final = {"stacks": "txt", "cpu": "speedscope.json", "operators": "trace.json.gz", "memory": "pickle"}
#: What py-spy says if the kernel does not let it read a process.
_DENIED: Final = ("permission denied", "operation not permitted")

#: The trainer's own status, with its stacks (`Heartbeat.status`); empty if it does not answer.
Examine = Callable[[], Awaitable[dict[str, Any]]]
#: Have the trainer record itself into a file. Returns the number of steps (`Recordings.record`).
Record = Callable[[Profile, Path], Awaitable[int]]


class ProfileFailed(Exception):
    """The profile could not be taken. The message says why, with a remedy."""


@dataclass(frozen=True)
class Outcome:
    """How a profile ended. `file`: the stored profile, None if it failed. `message`: what was profiled, or why it was not."""

    message: str
    file: Artifact | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Outcome":
        return cls(data["message"], None if data["file"] is None else Artifact(**data["file"]))


class Target(NamedTuple):
    """The process of the trainer. `program`: whether it runs a program, whose processes are below it. `mask`: hides the job's secrets.

    `record`: what the trainer records itself.
    """

    pid: int
    program: bool
    examine: Examine
    mask: SecretMask
    record: Record


class Profiler:
    """The profiles of one rank."""

    def __init__(self) -> None:
        # A hung program leaves its own recordings waiting, and its stacks are wanted then.
        self._recordings, self._samples = IdempotentTasks[Outcome](), IdempotentTasks[Outcome]()

    async def profile(self, order: Profile, target: Target | None) -> Outcome | None:
        """Take a profile, or wait for the one of this id; returns how it ended. None: it was not taken, and there is no target now."""
        tasks = self._recordings if order.kind in RECORDED else self._samples
        return await tasks.run(order.id, None if target is None else partial(self._taken, order, target))

    async def _taken(self, order: Profile, target: Target) -> Outcome:
        try:
            return await self._take(order, target)
        except ProfileFailed as error:
            message = str(error)
        except Exception as error:  # noqa: BLE001  (the outermost call of the task: storage raises many kinds of errors)
            message = f"the profile could not be stored: {type(error).__name__}: {error}"
        return Outcome(target.mask.hide_in(message))

    async def _take(self, order: Profile, target: Target) -> Outcome:
        if order.kind in RECORDED:
            return await _recorded(order, target)
        pids = await asyncio.to_thread(python_processes, target)
        if not pids:
            raise ProfileFailed(
                "this rank runs no Python process now; with command_per: node, profile the first rank of its node"
            )
        if order.kind == "cpu":
            content = target.mask.hide_in_json(await asyncio.to_thread(record, pids[0], order.seconds))
            what = f"{order.seconds} s of process {pids[0]} and those below it"
        else:
            text, what = await self._stacks(pids[:MOST_PROCESSES], target)
            if (more := len(pids) - MOST_PROCESSES) > 0:
                what += f", and not of {more} more"
            content = target.mask.hide(text.encode())
        return Outcome(what, await asyncio.to_thread(store, order, content))

    async def _stacks(self, pids: list[int], target: Target) -> tuple[str, str]:
        """The stacks of all processes, and what they are of. Of one that cannot be read, for it may just begin or end, the reason.

        Where none can be read, as the kernel may forbid it, those that the trainer reports itself.
        """
        texts: list[str] = []
        failures: list[ProfileFailed] = []
        until = time.monotonic() + STACKS_S
        for pid in pids:
            try:
                texts.append(await asyncio.to_thread(stacks, pid, until))
            except ProfileFailed as error:
                failures.append(error)
                texts.append(f"Process {pid}: {error}\n")
        if read := len(pids) - len(failures):
            return "\n".join(texts), f"the stacks of {read} process{'es' * (read > 1)}"
        reported = (await target.examine()).get("stacks")
        if not reported:
            raise failures[0]
        threads = [
            f"Thread {one['thread']!r}\n" + "".join(f"    {frame}\n" for frame in reversed(one["frames"]))
            for one in reported
        ]
        return "".join(threads), "the stacks that the process reported itself"


async def _recorded(order: Profile, target: Target) -> Outcome:
    """A profile that the trainer makes of itself, or the program of itself. Raises ProfileFailed."""
    with locked_folder(of_this_host(_FOLDER)) as folder:
        path = folder / "profile.json"
        try:
            steps = await target.record(order, path)
        except NotRecorded as error:
            raise ProfileFailed(str(error)) from None
        artifact = await asyncio.to_thread(_stored_recording, order, path, target.mask)
    what = f"{steps} step{'s' * (steps > 1)}" if steps else f"{order.seconds} s"
    return Outcome(f"{order.kind} of {what}", artifact)


def _stored_recording(order: Profile, path: Path, mask: SecretMask) -> Artifact:
    """Raises ProfileFailed."""
    if (size := path.stat().st_size) > MOST_RECORDED:
        raise ProfileFailed(
            f"the recording has {size:,} bytes, and at most {MOST_RECORDED:,} are stored; take fewer seconds"
        )
    content = path.read_bytes()
    if order.kind == "operators":
        content = gzip.compress(mask.hide_in_json(content), compresslevel=6, mtime=0)
    return store(order, content)


def python_processes(target: Target) -> list[int]:
    """The Python processes of a rank, parents first: the trainer's own, or those of the program that it runs."""
    if not target.program:
        return [target.pid]
    below = [pid for pid in process_tree.pids(target.pid) if pid != target.pid]
    return [pid for pid in below if _is_python(pid)]


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("python")
    except OSError:  # it has ended, or is another user's
        return False


def stacks(pid: int, until: float) -> str:
    """The stacks of one process, innermost frames first. `until`: the end of its time, as `time.monotonic`. Raises ProfileFailed."""
    for again in reversed(range(_TRIES)):
        limit_s = min(PATIENCE_S, max(0.0, until - time.monotonic()))
        try:
            return _py_spy(limit_s, "dump", "--pid", str(pid), "--nonblocking", "--full-filenames")
        except ProfileFailed:
            if not again or time.monotonic() >= until:
                raise
    raise AssertionError


def stacks_from_outside(target: Target, limit_s: float) -> str:
    """The stacks of the processes that can be read within the time, without numbers of processes and threads; empty if none can.

    Ranks that are at the same lines have the same text, of at most `MOST_TEXT` bytes.
    """
    until, found = time.monotonic() + limit_s, b""
    for pid in python_processes(target)[:MOST_PROCESSES]:
        if time.monotonic() >= until or len(found) >= MOST_TEXT:
            break
        with contextlib.suppress(ProfileFailed):
            found += target.mask.hide(_NUMBERS.sub(r"\1", stacks(pid, until)).encode()) + b"\n"
    return found[:MOST_TEXT].decode(errors="replace").strip()


def record(pid: int, seconds: int) -> bytes:
    """Sample a process and those below it; returns a file of speedscope's format. Raises ProfileFailed."""
    what = ("--pid", str(pid), "--subprocesses", "--nonblocking", "--duration", str(seconds), "--rate", str(RATE_HZ))
    with locked_folder(of_this_host(_FOLDER)) as folder:
        path = folder / "profile"
        _py_spy(seconds + PATIENCE_S, "record", *what, "--format", "speedscope", "--output", str(path))
        if not path.exists():
            raise ProfileFailed("py-spy saw no Python code run: the process may just be starting or ending")
        return path.read_bytes()


def _py_spy(limit_s: float, *arguments: str) -> str:
    """The standard output of py-spy. Raises ProfileFailed."""
    beside = Path(sys.executable).with_name("py-spy")
    command = str(beside) if beside.exists() else shutil.which("py-spy")
    if command is None:
        raise ProfileFailed("py-spy is not installed on this node: add it to the image of the Ray workers")
    try:
        done = subprocess.run(
            [command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProfileFailed(f"py-spy did not end within {limit_s:g} s; try again when the node is less busy") from None
    except OSError as error:
        raise ProfileFailed(f"{command} cannot be started: {error.strerror or error}") from None
    if done.returncode == 0:
        return done.stdout.decode(errors="replace")
    said = done.stderr.decode(errors="replace")
    if any(sign in said.lower() for sign in _DENIED):
        raise ProfileFailed(
            "the kernel does not let py-spy read the process: set the sysctl kernel.yama.ptrace_scope to 0 on the node, or give the "
            "container of the Ray workers the capability SYS_PTRACE"
        )
    raise ProfileFailed(f"py-spy failed: {' '.join(said.split())[-300:] or f'status {done.returncode}'}")


def store(order: Profile, content: bytes) -> Artifact:
    """Store a profile by its digest, as files that a program logs. Raises ProfileFailed, and the storage's errors."""
    if len(content) > order.most_bytes:
        raise ProfileFailed(f"the profile has {len(content):,} bytes, and a file may have {order.most_bytes:,}")
    digest = hashlib.sha256(content).hexdigest()
    folder = folder_at(order.storage)
    if not folder.has(digest):
        folder.publish(digest, memoryview(content), many_writers=True)
    name = f"profiles/rank-{order.rank}-{order.kind}-{order.id}.{_ENDINGS[order.kind]}"
    return Artifact(name=name, bytes=len(content), sha256=digest)
