"""The ranks of a job on this machine, without a control plane: the same variables, one process each, and none is left behind.

All are in one process group, led by a process that kills the group if this one dies (`local_guard.py`). When one rank fails, or a signal
asks for the end, all get SIGTERM, and SIGKILL after `GRACE_S` or at a second signal. What has left the group is killed, too.
"""

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..messages.rendezvous import RankAssignment
from ..parent_death import adopt_orphans, children, has_children_in, kill_orphans
from ..trainer.process_groups import name_interface
from .agents import OnLogged, listening
from .artifact_uploads import ArtifactUploads
from .environment import environment, of_node, of_rank, within
from .event_follower import following
from .launch import GRACE_S, LOOK_S
from .local_artifacts import LocalArtifacts
from .local_checkpoints import remove_copies
from .mlflow_server import serving
from .program import Program
from .program_end import OF_SHELL
from .rank_output import RankOutput
from .report_socket import LOCAL
from .reserved_port import reserved_port

#: Where the ranks find each other.
_HOST: Final = "127.0.0.1"
_GUARD: Final = Path(__file__).with_name("local_guard.py")
#: Signals that end the run.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds for the ends of killed processes.
KILL_S: Final = 10.0


@dataclass(frozen=True)
class LocalRun:
    """A program and its ranks. `folder`: in which it starts. `env`: its whole environment, but for the variables of its rank."""

    program: Program
    ranks: int
    folder: Path
    env: Mapping[str, str]
    gpus: str | None = None  # of all ranks, as CUDA_VISIBLE_DEVICES; None on CPUs
    environment: Path | None = None  # that of the program's Python; None: this one's
    conda: bool = False  # which made the environment
    kept: Path | None = (
        None  # folder of the files that the program logs, by their names; None: they are kept until the run ends
    )
    piped: bool = False  # the output of a single rank, too, goes where the others' does


@dataclass
class _Signals:
    """The signals that have asked for the end."""

    received: list[int] = field(default_factory=list)

    def take(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)


def run_locally(run: LocalRun, output: RankOutput) -> int:
    """Run all ranks to their ends; call it on the main thread. Raises OSError if the program cannot be started.

    Returns the exit status of the rank that failed first, or 128 + the signal that ended it or this run; 0 if all succeeded.
    """
    adopt_orphans()
    others = set(children())
    with _signals() as signals, _guard() as group, ExitStack() as stack:
        try:
            processes = _started(run, group, output, stack)
            status = _wait(processes, group, signals, output)
        finally:
            _kill(group, others)
            remove_copies()
        output.finish()
    return status


@contextmanager
def _signals() -> Iterator[_Signals]:
    """Signals that are noted while the block runs. What is ignored stays so: `nohup` has SIGHUP ignored."""
    signals = _Signals()
    heeded = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, signals.take) for number in heeded}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _guard() -> Iterator[int]:
    """The leader of the ranks' process group, by its id. Its id is taken until the block ends."""
    command = [sys.executable, "-I", "-S", str(_GUARD)]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)
    try:
        yield guard.pid
    finally:
        guard.kill()
        guard.communicate()


def _started(run: LocalRun, group: int, output: RankOutput, stack: ExitStack) -> dict[int, "subprocess.Popen[bytes]"]:
    """Rank → its process. With `per_node` the first is all that starts."""
    started = {}
    node = run.program.per_node
    port = stack.enter_context(reserved_port(_HOST)) if node else _store(run.ranks, stack)
    uploads = [_uploads(run) for _ in range(run.ranks)]
    for one in uploads:
        if one is not None:
            stack.callback(one.flush, lambda: False)  # after what reports to it has ended
    agents = [
        stack.enter_context(listening(_printing(output, rank), artifacts=uploads[rank])) for rank in range(run.ranks)
    ]
    name = secrets.token_hex(8)
    for rank in [0] if node else range(run.ranks):
        coords = RankAssignment(rank, run.ranks, rank, _HOST, port, local_world_size=run.ranks)
        own = of_node(run.program, coords, port) if node else of_rank(run.program, coords)
        sockets = [one.name for one in agents] if node else [agents[rank].name]
        env = environment(own, sockets, run.gpus, run.env)
        if run.environment is not None:
            env = within(run.environment, env, conda=run.conda)
        env[LOCAL] = name
        name_interface("lo", env)
        on_metrics = partial(output.print_metrics, rank)
        since = time.time()
        served = stack.enter_context(serving(env, on_metrics, uploads[rank]))
        started[rank] = _start(run, served, group, rank, output)
        events = None if run.program.tensorboard is None else run.folder / run.program.tensorboard
        stack.enter_context(following(events, started[rank].pid, since, on_metrics))
    return started


def _printing(output: RankOutput, rank: int) -> OnLogged:
    """Prints what a rank logs, also after a restart by its launcher."""
    return lambda blocks, _: output.print_metrics(rank, blocks)


def _uploads(run: LocalRun) -> ArtifactUploads | None:
    """What keeps the files that a rank logs. MLflow's clients may read them again until the run ends."""
    storage = run.program.artifacts
    if storage is None:
        return None
    keep = None if run.kept is None else LocalArtifacts(Path(storage.address), run.kept).keep
    return ArtifactUploads(storage, lambda *_: True, keep or (lambda _: None))


def _start(
    run: LocalRun, env: Mapping[str, str], group: int, rank: int, output: RankOutput
) -> "subprocess.Popen[bytes]":
    """Start one rank. The output of a single one is not changed, unless it is `piped`: it may be a terminal's."""
    pipe = subprocess.PIPE if run.ranks > 1 or run.piped else None
    process = subprocess.Popen(
        run.program.command,
        cwd=run.folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        process_group=group,
    )
    for stream in ("stdout", "stderr"):
        if (source := getattr(process, stream)) is not None:
            output.follow(rank, stream, source)
    return process


def _store(ranks: int, stack: ExitStack) -> int:
    """The port of the ranks' store, which this process holds as rank 0's trainer process does in a job."""
    listener = stack.enter_context(socket.create_server((_HOST, 0)))
    port: int = listener.getsockname()[1]
    handle = os.dup(listener.fileno())
    store = TCPStore(_HOST, port, ranks, is_master=True, wait_for_workers=False, master_listen_fd=handle)
    stack.callback(lambda: store)  # which lives until then
    return port


def _wait(processes: Mapping[int, "subprocess.Popen[bytes]"], group: int, signals: _Signals, output: RankOutput) -> int:
    """Wait until all have ended; the exit status of the run."""
    left = dict(processes)
    status: int | None = None
    deadline = float("inf")
    while left:
        _look(left)
        for rank in [rank for rank, process in left.items() if process.poll() is not None]:
            code = left.pop(rank).returncode
            if code != 0 and status is None:
                status = code if code > 0 else OF_SHELL - code
                output.print_line(rank, "stderr", _said(code, others=bool(left)).encode())
        if signals.received and status is None:
            status = OF_SHELL + signals.received[0]
        if output.closed.is_set() and status is None:
            status = OF_SHELL + signal.SIGPIPE
        if status is not None and deadline == float("inf"):
            deadline = time.monotonic() + GRACE_S
            os.killpg(group, signal.SIGTERM)
        if time.monotonic() >= deadline or len(signals.received) > 1:
            for process in left.values():
                process.kill()
    # A shell ends at once, while what it has started saves.
    while time.monotonic() < deadline < float("inf") and len(signals.received) < 2 and has_children_in(group):
        time.sleep(LOOK_S)
    return status or 0


def _look(processes: Mapping[int, "subprocess.Popen[bytes]"]) -> None:
    """Return when one of them has ended, or after `LOOK_S`."""
    poll = select.poll()
    handles = [os.pidfd_open(process.pid) for process in processes.values()]
    try:
        for handle in handles:
            poll.register(handle, select.POLLIN)
        poll.poll(1000 * LOOK_S)
    finally:
        for handle in handles:
            os.close(handle)


def _said(code: int, *, others: bool) -> str:
    names = {number.value: number.name for number in signal.Signals}  # real-time signals have none
    how = f"exited with status {code}" if code > 0 else f"was ended by {names.get(-code, f'signal {-code}')}"
    return f"shardyard: this rank {how}{', and the others are asked to end' if others else ''}"


def _kill(group: int, others: set[int]) -> None:
    """Kill the whole group, and what has left it. `others`: children of this process that the run has not started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    kill_orphans(others | {group}, KILL_S)
