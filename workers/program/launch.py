"""Runs a rank's program: the entry of the trainer process of a `command` job.

The trainer process starts the program in its own process group, so that whatever ends the one ends the other, and waits for it. Its
standard streams are the rank's log. On rank 0 it holds the store by which the programs find each other. It ends as the program ends: with
the exception that ended it, by the same signal, or done.
"""

import contextlib
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..messages.artifact import Artifact
from ..messages.event import ArtifactsEvent, MetricsEvent, to_json
from ..messages.metric_block import MetricBlock
from ..messages.other_version import reading_orders
from ..messages.rank_event import (
    PROGRAM_STARTS,
    FailedEvent,
    FailureFacts,
    ProgramStartedEvent,
    StoppedEvent,
)
from ..messages.rendezvous import RankAssignment
from ..messages.stop_request import StopRequest
from ..parent_death import has_children_in
from ..process_stat import state_of
from ..trainer.event_outbox import EmitEvent
from ..trainer.instruments import Instruments
from ..trainer.process_groups import name_interface
from .agents import Agents, failure_time, listening
from .artifact_uploads import ArtifactUploads
from .checkpoint_service import answering
from .environment import environment, of_driver, of_node, of_rank
from .event_follower import following
from .metric_batch import OnMetrics
from .mlflow_server import serving
from .node_exchange import numbered_ranks, values_of_node
from .preparation import ProgramFailed, Ranks, Start, cannot_start, prepared, wait_for_others
from .program import Program
from .program_end import end_like
from .rank_meeting import RankMeeting
from .ray_cluster import RayCluster, RayNodeFailed, ray_cluster
from .ray_train_service import RayTrainService
from .reserved_port import reserved_port
from .shared_folder import EndRequested

#: Seconds that a program has after SIGTERM.
GRACE_S: Final = 30.0
#: Seconds that the other ranks of a node stay when they are asked to end, since its program may save through them.
STAY_S: Final = GRACE_S + 10.0
#: Seconds between two looks at whether the job is to end.
LOOK_S: Final = 0.2
#: Seconds for other ranks of a node to report their exceptions before the process that started them.
OTHERS_S: Final = 0.5
#: Seconds for all ranks to exchange their GPUs and sockets.
MEET_S: Final = 600.0
#: What torchrun says if a signal has ended the worker that failed first.
_KILLED: Final = re.compile(r"Root Cause.*\bSignal (\d+) \(SIG", re.DOTALL)
#: Number of ranks whose program has failed, in the store.
_FAILED: Final = "shardyard/failed"


class _Reports(NamedTuple):
    """What takes the program's reports: of its processes, of its metrics, of its files. `store`: that of all ranks.

    `served`: ends the server for MLflow.
    """

    agents: Agents
    on_metrics: OnMetrics
    uploads: ArtifactUploads | None
    store: TCPStore
    served: ExitStack


def run_program(run: dict[str, Any], coords: RankAssignment, emit: EmitEvent, instruments: Instruments) -> TCPStore:
    """Run the program of `run`, a `Program` as JSON, until it ends. Raises ProgramFailed.

    Returns the store, which on rank 0 other ranks' programs may still use.
    """
    with reading_orders():
        program = Program.from_json(run)
    store = _store(coords)
    on_metrics = partial(_emit_metrics, coords, emit)
    # Without a launcher of their own, the ranks' count is that of the generations.
    on_logged = on_metrics if program.per_node else lambda blocks, _: on_metrics(blocks)
    numbered = numbered_ranks(program, store, coords)
    rank = numbered.index(coords.rank)  # as the program has it
    meeting = RankMeeting(store, rank, coords.world_size, lambda: instruments.stop_request() != StopRequest.NO)
    uploads = _uploads(program, store, coords, emit)
    with (
        answering(program, meeting, emit) as service,
        listening(on_logged, RayTrainService(program, service, meeting, emit).answer, uploads, numbered) as agents,
        ExitStack() as served,
    ):
        reports = _Reports(agents, on_metrics, uploads, store, served)
        instruments.pending_profile.deliver_to(partial(agents.recorders.record, emit))
        sockets = [agents.name]
        if program.per_node:
            sockets = values_of_node(store, coords, "agents", agents.name)
        devices = ",".join(values_of_node(store, coords, "gpus", _own_gpu())) if coords.device == "cuda" else None
        if program.per_node and coords.local_rank > 0:
            _follow(sockets[0], reports, emit, instruments)
            return store
        own = _own_variables(program, store, coords, served)
        base = dict(os.environ)
        name_interface(coords.interface, base)
        ranks = Ranks(store, coords, emit, partial(_is_to_stop, instruments))
        try:
            with prepared(program, environment(own, sockets, devices, base), ranks) as start:
                wait_for_others(program, ranks)
                env = served.enter_context(serving(start.env, on_metrics, uploads))
                with _within_ray(program, store, coords, start._replace(env=env), ranks.is_to_stop) as begun:
                    if begun.ray is None or begun.ray.has_driver:
                        _lead(program, begun, reports, emit, instruments)
                    else:
                        _attend(program, begun, begun.ray, reports, instruments)
        except EndRequested:
            emit(StoppedEvent.kind, to_json(StoppedEvent(step=0)))
    return store


def _lead(
    program: Program,
    start: Start,
    reports: "_Reports",
    emit: EmitEvent,
    instruments: Instruments,
) -> None:
    """Run the program until it ends. Raises ProgramFailed."""
    agents, since = reports.agents, time.time()
    if program.needs_preparation:
        sys.stderr.write(f"{PROGRAM_STARTS}\n")
        sys.stderr.flush()
    process = _start(program, start.folder, start.env)
    instruments.heartbeat.report = lambda: {"state": state_of(process.pid)} | agents.status(process.pid)
    emit(ProgramStartedEvent.kind, to_json(ProgramStartedEvent(pid=process.pid)))
    with following(_events(program, start), os.getpid(), since, reports.on_metrics):
        asked = _wait(process, instruments, start.ray)
        ended_at = time.monotonic()
    failures = agents.failures(ended_at, process.pid)
    failed = asked == StopRequest.NO and process.returncode != 0
    _flush(reports, instruments, failed=failed)
    if start.ray is not None:
        try:
            if failed:
                start.ray.blame()
        finally:
            start.ray.end(failed=failed)
    agents.release(ended_at if failed else None)
    if asked != StopRequest.NO:
        emit(StoppedEvent.kind, to_json(StoppedEvent(step=0)))
    elif failed:
        of_main = failures.pop(process.pid, None)
        of_others = next(iter(failures.values()), None)
        if not program.per_node or program.ray is not None:
            end_like(process.returncode, of_main or of_others)
        for one in filter(None, (of_main, *failures.values())):  # torchrun may be below a shell
            if one.type == "ChildFailedError" and (killed := _KILLED.search(one.message)):
                end_like(-int(killed[1]), None)
        time.sleep(OTHERS_S)  # an exception of another rank is the cause; the launcher's own only follows from it
        end_like(process.returncode, of_others or of_main)


def _attend(program: Program, start: Start, cluster: RayCluster, reports: _Reports, instruments: Instruments) -> None:
    """Keep this node of a driver's cluster until the driver ends. Raises RayNodeFailed, EndRequested."""
    agents, lost = reports.agents, False
    instruments.heartbeat.report = lambda: {"state": state_of(os.getpid())} | agents.status(os.getpid())
    try:
        with following(_events(program, start), os.getpid(), time.time(), reports.on_metrics):
            failed = cluster.attend(lambda: instruments.stop_request() != StopRequest.NO)
            ended_at = time.monotonic()
    except RayNodeFailed:
        lost = True
        raise
    finally:
        _flush(reports, instruments, failed=lost)
    agents.release(ended_at if failed else None)


def _events(program: Program, start: Start) -> Path | None:
    """The folder of its event files of TensorBoard."""
    return None if program.tensorboard is None else start.folder / program.tensorboard


def _follow(leader: str, reports: _Reports, emit: EmitEvent, instruments: Instruments) -> None:
    """Wait for the end of the program that the first rank of this node runs. Raises ProgramFailed if this rank's process made it fail."""
    agents = reports.agents
    instruments.heartbeat.report = lambda: {"state": state_of(os.getpid())} | agents.status(os.getpid())
    failed_at = failure_time(leader, _stays(instruments), LOOK_S)
    failures = [] if failed_at is None else list(agents.failures(failed_at).values())
    agents.finish()
    _flush(reports, instruments, failed=bool(failures))
    if failures:
        raise ProgramFailed(failures[0])
    if instruments.stop_request() != StopRequest.NO:
        emit(StoppedEvent.kind, to_json(StoppedEvent(step=0)))


def _stays(instruments: Instruments) -> Callable[[], bool]:
    """Whether this rank still waits for the program of its node: it does so for `STAY_S` after a request to end."""
    leave_at = math.inf

    def stays() -> bool:
        nonlocal leave_at
        if leave_at == math.inf and instruments.stop_request() != StopRequest.NO:
            leave_at = time.monotonic() + STAY_S
        return time.monotonic() < leave_at

    return stays


def _uploads(program: Program, store: TCPStore, coords: RankAssignment, emit: EmitEvent) -> ArtifactUploads | None:
    """What takes the files that the program logs. None if the job has no storage for them."""
    if program.artifacts is None:
        return None
    limits = program.artifacts

    def reserve(files: int, size: int) -> bool:
        """Counts in this generation, over all ranks; the service counts over the job's life. What is given back is less: it fits."""
        fits: bool = store.add("shardyard/artifacts", files) <= limits.files
        fits = store.add("shardyard/artifact-bytes", size) <= limits.bytes and fits
        if fits or files < 0:
            return True
        store.add("shardyard/artifacts", -files)
        store.add("shardyard/artifact-bytes", -size)
        return False

    def emit_stored(stored: Sequence[Artifact]) -> None:
        event = ArtifactsEvent(rank=coords.rank, generation=coords.generation, artifacts=tuple(stored))
        emit(event.kind, to_json(event))

    return ArtifactUploads(limits, reserve, emit_stored)


def _flush(reports: _Reports, instruments: Instruments, *, failed: bool = False) -> None:
    """End the server for MLflow, and wait until the files that the program has logged are stored.

    `failed`: the exception of this rank is reported afterwards. So the wait ends once another rank has failed, too: what that one reports
    may only follow from it.
    """
    uploads, store = reports.uploads, reports.store
    reports.served.close()
    if uploads is None:
        return

    def others_failed() -> bool:
        try:
            return store.add(_FAILED, 0) > 1
        except RuntimeError:  # rank 0 has ended
            return True

    if failed:
        with contextlib.suppress(RuntimeError):
            store.add(_FAILED, 1)
    is_hurried = others_failed if failed else lambda: False
    uploads.flush(lambda: instruments.stop_request() == StopRequest.STOP, is_hurried)


def _emit_metrics(coords: RankAssignment, emit: EmitEvent, blocks: list[MetricBlock], restarts: int = 0) -> None:
    event = MetricsEvent(rank=coords.rank, generation=coords.generation, restarts=restarts, blocks=tuple(blocks))
    emit(event.kind, to_json(event))


def _store(coords: RankAssignment) -> TCPStore:
    """The store at the job's master address: rank 0 holds it, the others are its clients."""
    return TCPStore(
        coords.master_host,
        coords.master_port,
        coords.world_size,
        is_master=coords.rank == 0,
        timeout=timedelta(seconds=MEET_S),
        wait_for_workers=False,
        master_listen_fd=coords.master_fd if coords.rank == 0 else None,
    )


def _own_gpu() -> str:
    """Ray gives each rank one GPU. All of a node see all of them, so that `cuda:LOCAL_RANK` is the rank's own."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


def _own_variables(program: Program, store: TCPStore, coords: RankAssignment, held: ExitStack) -> dict[str, str]:
    """The variables by which a program knows its place."""
    if program.ray is not None:
        return of_driver(program, coords)
    return of_node(program, coords, _port(store, coords, held)) if program.per_node else of_rank(program, coords)


def _port(store: TCPStore, coords: RankAssignment, held: ExitStack) -> int:
    """A port of rank 0's node, for the processes that start the ranks of their nodes."""
    if coords.rank == 0:
        store.set("shardyard/port", str(held.enter_context(reserved_port())))
    return int(store.get("shardyard/port"))


def _is_to_stop(instruments: Instruments) -> bool:
    """Whether the rank is to end before its program has started. Each call is a heartbeat: a long build is no hang."""
    instruments.heartbeat.update("prepare", 0)
    return instruments.stop_request() != StopRequest.NO


@contextmanager
def _within_ray(
    program: Program, store: TCPStore, coords: RankAssignment, start: Start, is_to_stop: Callable[[], bool]
) -> Iterator[Start]:
    """The start of a driver, whose cluster ends with the block; without `program.ray` as it is. Raises ProgramFailed, EndRequested."""
    if program.ray is None:
        yield start
        return
    try:
        with ray_cluster(program, store, coords, start.folder, start.env, is_to_stop) as cluster:
            yield start._replace(env=cluster.env, ray=cluster)
    except OSError as error:
        raise cannot_start(f"the Ray node on this node: {error}") from None
    except RayNodeFailed as error:
        message = f"the job's Ray cluster: {error}"
        raise ProgramFailed(
            FailedEvent(type=type(error).__name__, message=message, traceback="", facts=FailureFacts(cause=error.cause))
        ) from None


def _start(program: Program, cwd: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the program in this process's group. Raises ProgramFailed."""
    try:
        return subprocess.Popen(program.command, cwd=cwd, env=env, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise cannot_start(f"{program.command[0]!r} on this node: {error.strerror}") from None


def _wait(process: "subprocess.Popen[bytes]", instruments: Instruments, cluster: RayCluster | None) -> StopRequest:
    """Wait until the program has ended; returns the request to end that it was given, if there was one.

    A driver whose cluster is lost is killed.
    """
    while not _has_ended(process.pid, LOOK_S):
        if cluster is not None and cluster.is_lost:
            process.kill()
        if (asked := instruments.stop_request()) != StopRequest.NO:
            _terminate(process)
            return asked
    process.wait()
    return StopRequest.NO


def _terminate(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM to all processes of the rank but this one, and wait for their ends; SIGKILL to the program after `GRACE_S`.

    The program may be a shell, which ends at once, while what it has started saves.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        if _has_ended(process.pid, LOOK_S):
            break
    process.kill()
    process.wait()
    while time.monotonic() < deadline and has_children_in(os.getpgrp()):
        time.sleep(LOOK_S)


def _has_ended(pid: int, seconds: float) -> bool:
    """Whether the child `pid` ends within these seconds; it is not reaped. Orphans of the program that end meanwhile are."""
    ended = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        if poll.poll(1000 * seconds):
            return True
    finally:
        os.close(ended)
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if child.si_pid == pid:
                return True
            os.waitpid(child.si_pid, 0)
    return False
