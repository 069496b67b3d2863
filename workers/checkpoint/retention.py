"""Lists and prunes a job's checkpoints, a folder `step-NNNNNNNN` each. One without a manifest is incomplete: ignored, and overwritten.

Pruning never removes the checkpoint that was saved last, whatever the state of the others, and none that is pinned. A checkpoint that a
restore found corrupt has a note of that in its folder, and takes no valid one's place. A save of its step removes the note.

A pin is a file in the checkpoint's folder, because a process that prunes reaches nothing but the storage. Who prunes writes that it
removes a checkpoint and then looks for a pin; who pins writes the pin and then looks for that note. So of both at once, at least one
gives way: no checkpoint that was reported as pinned is removed. Only the call that wrote a pin removes it when it gives way.

What saves leave that are killed or fail goes with the next save, or before it if the disk is full: else that one would never succeed.
"""

import contextlib
import errno
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from ..storage.folder import Folder
from .errors import CheckpointAbsent, CheckpointError, CheckpointRemoved
from .manifest import MANIFEST, Manifest, PublishedManifest, read

T = TypeVar("T")

_STEP = "step-"
#: Files: the checkpoint is pinned; it is about to be removed, since a time in unix seconds; a restore found it corrupt.
PINNED = "pinned"
_REMOVING = "removing"
_CORRUPT = "corrupt"
#: How the names of ranks' files begin.
_RANK: Final = "rank-"
#: Seconds after which a removal that is noted has died: one takes seconds, and a process that is cut off ends with its lease.
DIED_S: Final = 86_400.0
#: Errors of a full disk. No pin can be written on it either.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def folder(root: Folder, step: int) -> Folder:
    return root / f"{_STEP}{step:08d}"


def complete(root: Folder) -> list[Folder]:
    """The complete checkpoints below `root`, newest first."""
    return _having(root, MANIFEST, _steps(root))


def newest(root: Folder) -> Folder | None:
    """The newest complete checkpoint below `root`, or `root` itself if it is one."""
    return root if root.has(MANIFEST) else next((path for path in _steps(root) if path.has(MANIFEST)), None)


def step_of(path: Folder) -> int:
    """The step of a checkpoint's folder."""
    return _number(path.name)


def prune(
    root: Folder, keep: int, published: PublishedManifest, spared: Collection[int] = ()
) -> tuple[int, ...] | None:
    """Remove all but what was `published`, the newest others, `keep` in all, those of the steps `spared`, and pinned ones; also older
    incomplete saves.

    Of the others those that are noted as corrupt go first. Incomplete saves of later steps stay: another rank may be writing them.
    Returns the steps of the checkpoints that are left, in order. If what was published cannot be read back as it was written, removes
    nothing and returns None. A manifest is removed first, so that a half-removed checkpoint does not count as complete.
    """
    if not _in_place(published):
        return None
    saved = published.folder
    steps = _steps(root)
    whole = _having(root, MANIFEST, [path for path in steps if path != saved])
    kept, corrupt = set(_having(root, PINNED, whole)), _having(root, _CORRUPT, whole)
    others = sorted((path for path in whole if path not in kept), key=lambda path: path in corrupt)
    kept |= {path for number, path in enumerate(others) if number < keep - 1 or step_of(path) in spared}
    kept |= {path for path in others if path not in kept and _stays(path)}
    gone = [path for path in whole if path not in kept]
    for path in gone:
        path.remove(MANIFEST)
    for path in steps:
        if path in gone or (step_of(path) < step_of(saved) and path not in kept):
            path.remove_all()
    return tuple(sorted(step_of(path) for path in (saved, *kept)))


def listed_again(
    find: Callable[[int], T], pauses_s: Sequence[float], beat: Callable[[], None] = lambda: None, least: int = 0
) -> T:
    """What `find` returns, which lists checkpoints. Where a save has removed one meanwhile a newer one is there, so it is called again.

    This node may see the newer one later. Until the pauses are over None is then no answer, and `find` is to refuse checkpoints of steps
    below its argument, as `refuse_older` does. `least`: its first. `beat` is called after each of the pauses. Raises what `find` raises,
    and its last `CheckpointAbsent` if no other one has come by the end of the pauses.
    """
    removed: CheckpointAbsent | None = None
    for pause_s in (*pauses_s, None):
        try:
            found = find(0 if pause_s is None else least)
        except CheckpointAbsent as error:
            removed, least = error, max(least, _step_in(error.folder))
        else:
            if found is not None or removed is None:
                return found
        if pause_s is None:
            break
        time.sleep(pause_s)
        beat()
    assert removed is not None
    raise removed


def refuse_older(path: Folder, least: int) -> None:
    """Raise CheckpointAbsent for a checkpoint of a step below `least`: one of that step was removed, for which a newer one is there."""
    if step_of(path) < least:
        # Without its name: it was not removed.
        raise CheckpointAbsent(f"{path} is older than one that was removed, and no newer one is seen yet; try again.")


def is_full(error: OSError) -> bool:
    """Whether a write has failed because the disk is full, or a quota is used up."""
    return error.errno in _FULL


def make_room(root: Folder, step: int, edition: str, is_over: Callable[[int], bool] = lambda _: True) -> bool:
    """Remove what saves that were killed or failed have left, after a write of `step` found the disk full. Returns whether there was any.

    Of older steps those without a manifest go, as by `prune`, if `is_over(step)`: if no rank of this run writes them any more. Of the
    others, and of `step`, ranks' files go that no manifest names and whose names lack `edition`, the mark of this run. Another run that is
    alive was cut off: its save then fails, as `commit` finds. Never raises OSError.
    """
    made = False
    with contextlib.suppress(OSError):
        for path in _steps(root):
            older = step_of(path) < step
            if step_of(path) > step or (older and path.has(MANIFEST)):
                continue
            if older and is_over(step_of(path)):
                made |= bool(path.files())
                path.remove_all()
                continue
            for name in _left_by_others(path, edition):
                path.remove(name)
                made = True
    return made


def _left_by_others(path: Folder, edition: str) -> list[str]:
    """Ranks' files of other runs that no manifest names; none if the manifest does not show which it names. Raises OSError."""
    names = [name for name in path.files() if name.startswith(_RANK) and edition not in name]
    try:
        saved = read(path).files if names else {}
    except CheckpointAbsent:
        saved = {}
    except CheckpointError:
        return []
    return [name for name in names if name not in saved]


def note_corrupt(path: Folder) -> None:
    """Let later saves remove this checkpoint before valid ones. Raises OSError."""
    path.publish(_CORRUPT, b"", many_writers=True)


def note_valid(path: Folder) -> None:
    """Take back `note_corrupt`: a checkpoint may have been read wrongly once. Raises OSError."""
    path.remove(_CORRUPT)


def pin(path: Folder) -> Manifest:
    """Keep a complete checkpoint whatever is saved later, and return its manifest. Harmless if repeated.

    Raises CheckpointError if it is not there, CheckpointRemoved if it was removed meanwhile, and OSError, also if a save is about to
    remove it, or died before it did.
    """
    manifest = read(path)
    pinned_before = path.has(PINNED)
    if not pinned_before:
        path.publish(PINNED, b"", many_writers=True)
    # In this order: a removal takes the manifest before its own note.
    removing, there = path.has(_REMOVING) and not _has_died(path), path.has(MANIFEST)
    if there and not removing:
        return manifest
    if not (there and pinned_before):  # else that pin may have been reported, and the removal may have seen it
        path.remove(PINNED)
    if there:
        again = "pin it again in a minute, or in a day if that save has died"
        raise OSError(errno.EBUSY, f"a save is looking whether it is pinned; {again}", path.where)
    raise CheckpointRemoved(f"{path} was removed, to make room; pin a newer one.", path.name)


def unpin(path: Folder) -> None:
    """Let a later save remove the checkpoint. Harmless if it is not pinned, or not there. Raises OSError."""
    path.remove(PINNED)


def _stays(path: Folder) -> bool:
    """Whether a checkpoint that was not pinned is not removed either: it is pinned by now. If not, it cannot be pinned any more."""
    try:
        path.publish(_REMOVING, str(time.time()).encode(), many_writers=True)
    except OSError as error:
        if (
            error.errno not in _FULL
        ):  # a pin may be written, which does not see this removal: the next save prunes again
            return True
    if not path.has(PINNED):
        return False
    path.remove(_REMOVING)
    return True


def _has_died(path: Folder) -> bool:
    """Whether a process has noted a removal, and has died before it."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return time.time() - float(path.read(_REMOVING)) > DIED_S
    return False


def sweep(root: Folder, saved: Folder) -> None:
    """Abort the uploads that dead writers of `saved` and of older checkpoints have left. Other writers below `root` may be alive.

    Raises OSError.
    """
    root.sweep(lambda name: is_step(name) and step_of(root / name) <= step_of(saved))


def clear(published: PublishedManifest) -> None:
    """Remove what an earlier save of the same step has left in the folder, once the manifest is published.

    Raises OSError, and CheckpointError if another save has meanwhile removed files of this one, or replaced its manifest.
    """
    path, manifest = published.folder, published.manifest
    there = path.files()
    refuse_lost(path, manifest, there)
    others = [name for name in there if name not in (MANIFEST, PINNED) and name not in manifest.files]
    if others and not published.is_there():
        raise _another_save(path, "replaced or removed")
    for name in others:
        path.remove(name)


def refuse_lost(path: Folder, manifest: Manifest, there: Mapping[str, int]) -> None:
    """Raise CheckpointError unless all files of `manifest` exist in full size. `there`: a listing of the folder."""
    for name, file in manifest.files.items():
        # A node's listing of NFS may be seconds old. Whether one file exists is asked of the server.
        if there.get(name) != file.bytes and (name in there or not path.has(name)):
            raise _another_save(path, "removed files of")


def _another_save(path: Folder, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: another save has {what} step {step_of(path)} meanwhile; save one step at a time, in order."
    )


def _steps(root: Folder) -> list[Folder]:
    """Newest first."""
    return sorted((root / name for name in root.folders() if is_step(name)), key=step_of, reverse=True)


def _step_in(name: str) -> int:
    """The step in the name of a checkpoint's folder; 0 in another name."""
    return _number(name) if is_step(name) else 0


def _number(name: str) -> int:
    return int(name.removeprefix(_STEP))


def is_step(name: str) -> bool:
    """Whether a folder of this name is a checkpoint's. One that a user put beside them, such as `step-00000010-good`, is not."""
    return name.startswith(_STEP) and name.removeprefix(_STEP).isdecimal()


def _having(root: Folder, name: str, paths: list[Folder]) -> list[Folder]:
    """Those of the folders that have a file of this name, in the same order."""
    there = root.each(lambda path: path.has(name), paths)
    return [path for path, has in zip(paths, there, strict=True) if has]


def _in_place(published: PublishedManifest) -> bool:
    """Whether a checkpoint's manifest can be read back as it was published, and its files exist in full size."""
    with contextlib.suppress(OSError):
        if published.is_there():
            there = published.folder.files()
            return all(there.get(name) == file.bytes for name, file in published.manifest.files.items())
    return False
