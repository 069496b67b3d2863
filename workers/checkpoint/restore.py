"""Restores the job's own newest valid checkpoint, else the one to resume from, else nothing. All ranks restore the same one.

A corrupt checkpoint is reported and skipped, never used in part. A corrupt one that the user named is an error, as another one is not
what the user asked for. Storage that does not answer is not damage: it is retried for a while, and until then nothing is decided. A
checkpoint that cannot be read even then is skipped, and not noted as corrupt. If no other one is valid, the restore fails. One that a save
removes while it is verified or read, such as that of a gang that was cut off, is not corrupt either: a newer one is there, so they are
listed again. An older one, such as one that is pinned, is restored only if this node has seen no newer one by the end of the pauses.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import torch.distributed as dist

from ...strategies.param_shard import ParamShard
from ..ready_ranks import wait_for_all
from ..storage.errors import StorageError, StorageUnreachable, StorageUnreadable
from ..storage.folder import Folder
from .errors import CheckpointAbsent, CheckpointCorrupt, CheckpointError
from .manifest import Manifest, read
from .reader import load_into
from .resumed import chosen, note_chosen
from .retention import complete, listed_again, note_corrupt, note_valid, refuse_older, step_of
from .verify import verify_together

T = TypeVar("T")

#: Checks a checkpoint before any tensor is read; the second argument is whether it is the job's own. Raises to refuse it.
Accept = Callable[[Manifest, bool], None]


@dataclass(frozen=True)
class Restored:
    """The checkpoint whose tensors were read. `own`: the job itself has saved it."""

    path: Folder
    manifest: Manifest
    own: bool


class Warn(Protocol):
    """Reports an incident: its cause, a message, and the step of the checkpoint that is meant."""

    def __call__(self, cause: str, message: str, step: int | None = None, /) -> None: ...


#: Why a checkpoint of the job is not used.
Skipped = CheckpointCorrupt | StorageUnreadable

#: Seconds before each further request to storage that did not answer, and before each further list of checkpoints of which one was removed.
BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)


def restore(
    root: Folder,
    resume: Folder | None,
    shards: Sequence[ParamShard],
    warn: Warn,
    accept: Accept,
    beat: Callable[[], None] = lambda: None,
) -> Restored | None:
    """Fill `shards` and return where their values are from; None: from the start. Collective.

    `beat` is called for each block and part that is read, before each retry, and while other ranks read their shares. Raises
    `CheckpointError`, `StorageError`, and what `accept` raises.
    """
    skipped: list[tuple[Folder, Skipped]] = []
    retries, read_retries = _Retries(warn, beat), partial(_Retries, _once(warn), beat)
    load = partial(_load_together, shards, accept, read_retries, beat)
    tried: list[Folder] = []

    def newest(least: int) -> Restored | None:
        own = _own(root, skipped, retries, least)
        tried.extend([] if own is None else [own.path])
        return load(own)

    try:
        found = listed_again(newest, BACKOFF_S, beat)  # on all ranks alike, as its outcome is
    except BaseException:
        if tried:
            _report(skipped, f"{tried[-1]} was chosen in its place", warn)
        raise
    _report(skipped, f"training continues from {found.path if found else resume or 'the start'}", warn)
    return found if found is not None or resume is None else load(_resumed(root, resume, retries))


def _load_together(
    shards: Sequence[ParamShard],
    accept: Accept,
    retries: Callable[[], "_Retries"],
    beat: Callable[[], None],
    found: Restored | None,
) -> Restored | None:
    """Fill `shards` from what was `found`, if anything was, and return that. Collective.

    Raises `CheckpointAbsent`, on all ranks, if one of them finds the checkpoint removed.
    """
    if found is None:
        return None
    if "program" in found.manifest.training:
        raise CheckpointError(f"{found.path} holds a program's own files; resume a training job's checkpoint.")
    accept(found.manifest, found.own)
    removed: CheckpointAbsent | None = None
    try:
        load_into(found.path, found.manifest, shards, beat, lambda read: retries().of(read))
    except CheckpointAbsent as error:
        removed = error
    wait_for_all("restored", beat)
    findings: list[CheckpointAbsent | None] = [removed] * dist.get_world_size()
    dist.all_gather_object(findings, removed)
    for finding in findings:
        if finding is not None:
            raise finding
    return found


def training_before(root: Folder, resume: Folder | None, beat: Callable[[], None] = lambda: None) -> Mapping[str, Any]:
    """The state beside the tensors of the newest checkpoint below `root` whose manifest can be read, else of `resume`; empty without one.

    No file of it is verified, and no other rank asked. Storage that does not answer is tried again. Raises `StorageError`.
    """

    retries, unread = _Retries(lambda *_: None, beat), None
    for path in retries.of(lambda: complete(root)):
        try:
            return retries.of(partial(read, path)).training
        except CheckpointError:
            continue
        except StorageUnreadable as error:
            unread = error
    if unread is not None:
        raise unread
    with contextlib.suppress(CheckpointError):
        return {} if resume is None else retries.of(lambda: read(chosen(root, resume))).training
    return {}


def _report(skipped: Sequence[tuple[Folder, Skipped]], then: str, warn: Warn) -> None:
    """Report the checkpoints that are not used, and what happens then."""
    for path, error in skipped:
        warn(error.code, f"{_why(path, error)}; {then}.", step_of(path))


def _once(warn: Warn) -> Warn:
    """Warns by its first call only, whichever thread that is of."""
    first = threading.Lock()

    def warn_once(cause: str, message: str, step: int | None = None, /) -> None:
        if first.acquire(blocking=False):
            warn(cause, message, step)

    return warn_once


class _Retries:
    """Repeats requests while the storage does not answer. All that it is asked for share the pauses of `BACKOFF_S`."""

    def __init__(self, warn: Warn, beat: Callable[[], None]) -> None:
        self.warn, self.beat = warn, beat
        self._left = list(BACKOFF_S)

    def of(self, request: Callable[[], T]) -> T:
        """What `request` returns. If it is collective, all ranks get the same outcome, so all repeat it."""
        while True:
            try:
                return request()
            except StorageError as error:
                if not (error.passing and self._left):
                    raise
                if len(self._left) == len(BACKOFF_S):
                    self.warn(error.code, f"{error}; trying again for {sum(BACKOFF_S):.0f} s.")
            time.sleep(self._left.pop(0))
            self.beat()


def _own(root: Folder, skipped: list[tuple[Folder, Skipped]], retries: _Retries, least: int) -> Restored | None:
    """The job's newest valid checkpoint, of which no tensor is read yet. Raises `CheckpointAbsent`, `StorageError`."""
    found = _newest_valid(root, skipped, retries, least)
    unread = next(((path, error) for path, error in skipped if isinstance(error, StorageUnreadable)), None)
    if found is None and unread is not None:
        remedy = "repair the storage, or remove this folder to train without it"
        raise StorageUnreachable(
            f"{unread[0]} cannot be read ({unread[1]}), and no other checkpoint is valid; {remedy}."
        )
    return None if found is None else Restored(*found, own=True)


def _resumed(root: Folder, resume: Folder, retries: _Retries) -> Restored:
    """The valid checkpoint with which the job begins, of which no tensor is read yet."""
    (path,) = retries.of(lambda: _as_first_rank_sees(resume, lambda: [chosen(root, resume)]))
    manifest = retries.of(lambda: verify_together(path, retries.beat))
    _note(partial(note_chosen, root, resume), path)
    return Restored(path, manifest, own=False)


def _why(path: Folder, error: Skipped) -> str:
    if isinstance(error, StorageUnreadable):
        return f"{path} cannot be read ({error})"
    return str(error).partition(";")[0]


def _newest_valid(
    root: Folder, skipped: list[tuple[Folder, Skipped]], retries: _Retries, least: int
) -> tuple[Folder, Manifest] | None:
    """The newest checkpoint whose files are all valid. Newer ones are added to `skipped`; corrupt ones are noted in the storage.

    Raises `CheckpointAbsent` if one is removed meanwhile, and for one of a step below `least`.
    """
    for path in retries.of(lambda: _as_first_rank_sees(root, lambda: complete(root))):
        if path in [known for known, _ in skipped]:
            continue
        refuse_older(path, least)
        try:
            found = path, retries.of(partial(verify_together, path, retries.beat))
        except CheckpointCorrupt as error:
            skipped.append((path, error))
            _note(note_corrupt, path)
        except StorageUnreadable as error:
            skipped.append((path, error))
        else:
            _note(note_valid, path)
            return found
    return None


def _note(kind: Callable[[Folder], None], path: Folder) -> None:
    if dist.get_rank() == 0:
        with contextlib.suppress(OSError):
            kind(path)


def _as_first_rank_sees(root: Folder, look: Callable[[], list[Folder]]) -> list[Folder]:
    """`root`, or folders in it, as rank 0 sees them: other nodes may see a folder later. Collective."""
    seen: list[Any] = [_names(look) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(seen, src=0)
    if isinstance(seen[0], OSError):
        raise seen[0]
    return [root if where == root.where else root / where.rpartition("/")[2] for where in seen[0]]


def _names(look: Callable[[], list[Folder]]) -> list[str] | OSError:
    try:
        return [path.where for path in look()]
    except OSError as error:
        return error
