"""What a program needs before it starts, on one node: its code, its files, its environment. It stays while the program runs.

What cannot be had is a `ProgramFailed` whose event names the cause, so that the job fails, or gets a new attempt, for the right reason.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..code_archive import InvalidArchive
from ..messages.event import FilesEvent, to_json
from ..messages.rank_event import FailedEvent, FailureFacts
from ..messages.rendezvous import RankAssignment
from ..trainer.event_outbox import EmitEvent
from . import cache_disk
from .build_process import NOT_PREPARED, EnvironmentNotBuilt
from .conda_environment import conda_environment
from .environment import within
from .environment_folder import WAIT_S as BUILD_S
from .files.errors import FilesNotFetched
from .files.job_files import WAIT_S as FILES_S
from .files.job_files import JobFiles, Record
from .files.links import VARIABLE, link_into, links
from .program import Program
from .python_environment import python_environment
from .ray_cluster import RayCluster
from .shared_folder import EndRequested, FolderUnavailable
from .working_copy import WAIT_S as CODE_S
from .working_copy import CodeUnusable, working_copy

#: Seconds between two looks at the store.
LOOK_S: Final = 0.2
#: Rank 0 has noted what the sources of the job's files have.
_RECORDED: Final = "shardyard/files-recorded"


class ProgramFailed(Exception):
    """The program has failed. `failed` is the event that says how."""

    def __init__(self, failed: FailedEvent) -> None:
        super().__init__(f"{failed.type}: {failed.message}")
        self.failed = failed


class Start(NamedTuple):
    """Where a program starts, and with which variables. `ray`: the cluster of a driver."""

    folder: Path
    env: Mapping[str, str]
    ray: RayCluster | None = None


class Ranks(NamedTuple):
    """A rank's way to the others, and to the job's events. `is_to_stop` is a heartbeat."""

    store: TCPStore
    coords: RankAssignment
    emit: EmitEvent
    is_to_stop: Callable[[], bool]


@contextmanager
def prepared(program: Program, env: dict[str, str], ranks: Ranks) -> Iterator[Start]:
    """What the program needs, while it runs. Raises ProgramFailed, EndRequested, StorageError, OSError."""
    cache, is_to_stop = Path(program.cache), ranks.is_to_stop
    with ExitStack() as stack:
        root = Path.home()
        try:
            if program.code is not None:
                root = stack.enter_context(working_copy(program.code, program.job, cache, is_to_stop))
            if program.files is not None:
                env = env | {VARIABLE: str(stack.enter_context(_files(program, root, ranks)))}
            if program.python is not None:
                env = within(stack.enter_context(python_environment(program.python, root, cache, is_to_stop)), env)
            if program.conda is not None:
                place = stack.enter_context(conda_environment(root / program.conda, cache, is_to_stop))
                env = within(place, env, conda=True)
        except (CodeUnusable, InvalidArchive) as error:
            raise cannot_start(str(error)) from None
        except FolderUnavailable as error:
            raise _with_cause(error, NOT_PREPARED, f"the program cannot be started: {error}") from None
        except EnvironmentNotBuilt as error:
            raise _with_cause(error, error.cause, f"the environment cannot be built: {error}") from None
        except FilesNotFetched as error:
            raise _with_cause(error, error.cause, f"the files cannot be fetched: {error}") from None
        except OSError as error:
            if (cause := cache_disk.cause_of(error)) is None:
                raise
            why = f"the program cannot be started: the cache of this node: {error}"
            raise _with_cause(error, cause, why) from None
        cwd = root / (program.cwd or "")
        if not cwd.is_dir():
            raise cannot_start(f"its working folder {cwd} is no folder on this node")
        yield Start(cwd, env)


def wait_for_others(program: Program, ranks: Ranks) -> None:
    """Wait until all ranks are prepared, where that may take long. Raises ProgramFailed, EndRequested."""
    if program.needs_preparation:
        processes = ranks.coords.nodes if program.per_node else ranks.coords.world_size
        wait_for_all(ranks.store, processes, ranks.is_to_stop, _limit_s(program))


def _limit_s(program: Program) -> float:
    """Seconds that a rank may take: for each part it may wait for another process, in vain, and then do the work itself."""
    parts = ((program.code, CODE_S), (program.files, FILES_S), (program.python or program.conda, BUILD_S))
    return sum(2 * wait_s for part, wait_s in parts if part is not None)


def wait_for_all(store: TCPStore, processes: int, is_to_stop: Callable[[], bool], limit_s: float) -> None:
    """Wait until this many processes have called it. Raises ProgramFailed, EndRequested.

    A program that finds others missing fails after torch's time limit, which is shorter than a build may take on another node.
    """
    if store.add("shardyard/prepared", 1) == processes:
        store.set("shardyard/all-prepared", "")
    _wait(store, "shardyard/all-prepared", is_to_stop, limit_s, "prepared the program")


def cannot_start(why: str) -> ProgramFailed:
    """The failure of a program that was not started."""
    return ProgramFailed(
        FailedEvent(type="ProgramNotStarted", message=f"the program cannot be started: {why}", traceback="")
    )


@contextmanager
def _files(program: Program, root: Path, ranks: Ranks) -> Iterator[Path]:
    """The folder with links to the job's files. Raises FilesNotFetched, FolderUnavailable, ProgramFailed, EndRequested."""
    assert program.files is not None
    cache = Path(program.cache)
    files = JobFiles(program.mounts, program.files, cache, ranks.is_to_stop)
    with files.held(_record(files, ranks)) as found, links(found, program.job, cache, ranks.is_to_stop) as folder:
        if program.code is not None:
            link_into(root, found, folder)
        yield folder


def _record(files: JobFiles, ranks: Ranks) -> Record:
    if ranks.coords.rank > 0:
        _wait(ranks.store, _RECORDED, ranks.is_to_stop, FILES_S, "read the sources of the job's files")
        return files.recorded()
    record = files.resolve()
    event = FilesEvent(files=tuple(files.mounted(record)))
    ranks.emit(event.kind, to_json(event))
    ranks.store.set(_RECORDED, "")
    return record


def _wait(store: TCPStore, key: str, is_to_stop: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not store.check([key]):
        if is_to_stop():
            raise EndRequested
        if time.monotonic() >= deadline:
            raise _not_in_time(f"other ranks have not {what} within {limit_s:g} s")
        time.sleep(LOOK_S)


def _not_in_time(why: str) -> ProgramFailed:
    """The rank that raises it was ready, and is not to blame."""
    failed = cannot_start(why).failed
    return ProgramFailed(replace(failed, facts=FailureFacts(cause=NOT_PREPARED, unattributed=True)))


def _with_cause(error: Exception, cause: str, message: str) -> ProgramFailed:
    facts = FailureFacts(cause=cause)
    return ProgramFailed(FailedEvent(type=type(error).__name__, message=message, traceback="", facts=facts))
