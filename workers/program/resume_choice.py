"""Chooses the checkpoint from which a program continues, the same on all ranks: the first that asks picks it, and all check their parts.

The newest valid one of the job wins, then the one that the job continues. One that is corrupt, or cannot be read, is reported and skipped.
One that a save removes meanwhile, such as that of a gang that was cut off, is neither: the checkpoints are listed again.
"""

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..checkpoint.errors import CheckpointAbsent, CheckpointCorrupt, CheckpointError
from ..checkpoint.program_files import SavedByProgram, check, read_program
from ..checkpoint.retention import complete, listed_again, note_corrupt, note_valid, refuse_older, step_of
from ..messages.event import IncidentEvent, to_json
from ..storage.errors import StorageUnreadable
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from ..trainer.event_outbox import EmitEvent
from . import storage_tries
from .rank_meeting import RankMeeting, Vote
from .shared_folder import EndRequested
from .storage_tries import tried

#: Why a checkpoint is not used. One that cannot be read may be valid.
Fault = CheckpointCorrupt | StorageUnreadable | CheckpointAbsent
#: What the picker publishes: `where`, `own` (the job has saved it), `every` (all ranks have), `unread` (why a newer one cannot be read).
Choice = dict[str, Any]


class ResumeChoice:
    """One rank's share of a choice. `trainer`: the trainer of Ray Train for which it is; None: the newest of all.

    `root` returns the job's folder, `fetched` a folder of this node with a part. `resume`: the address of what the job continues.
    """

    def __init__(
        self,
        root: Callable[[], Folder],
        resume: str | None,
        meeting: RankMeeting,
        trainer: int | None,
        fetched: Callable[[SavedByProgram, int], Path],
        emit: EmitEvent,
    ) -> None:
        self._root, self._resume, self._trainer = root, resume, trainer
        self._meeting, self._fetched, self._emit = meeting, fetched, emit
        self._number = 0  # of the next pick
        self._reported: set[str] = set()

    def chosen(self) -> SavedByProgram | None:
        """Agree with the other ranks on the newest checkpoint that is valid. Raises CheckpointError, StorageError, EndRequested."""
        try:
            return listed_again(self._agreed, storage_tries.BACKOFF_S)
        except CheckpointAbsent:
            self._meeting.give_up(self._trainer)
            raise

    def _agreed(self, least: int) -> SavedByProgram | None:
        """The choice of all ranks, as `listed_again` has it. Raises CheckpointAbsent, on all of them, where a rank finds that one was
        removed."""
        before: Choice | None = None
        while True:
            number, self._number = self._number, self._number + 1
            choice = self._meeting.picked(number, partial(self._pick, before, least), self._trainer)
            if choice is None:
                return None
            path = folder_at(choice["where"])
            saved, fault = self._examined(path, choice["own"])
            vote = _vote(fault)
            if choice["every"]:
                vote = self._meeting.agree(number, vote, self._trainer)
            if vote == "valid" and saved is not None:
                self._meeting.fetched(self._trainer)
                if choice["own"]:
                    with contextlib.suppress(OSError):
                        note_valid(path)
                return saved
            if not choice["every"]:  # the other ranks may have it
                raise _final(fault, path)
            if not choice["own"]:
                self._meeting.give_up(self._trainer)
                raise _final(fault, path)
            if vote == "removed":
                raise CheckpointAbsent(f"{path} was removed, to make room; call resume() again.", path.name)
            if vote == "unread":
                choice["unread"] = f"{path} cannot be read"
            before, least = choice, 0  # it was seen, and is not used: what is older than the removed one may be

    def _examined(self, path: Folder, own: bool) -> tuple[SavedByProgram | None, Fault | None]:
        """The checkpoint that was picked, or what is wrong with it."""
        try:
            saved = tried(partial(read_program, path))
        except (CheckpointCorrupt, StorageUnreadable, CheckpointAbsent) as fault:
            self._skip(fault, path, own)
            return None, fault
        return saved, self._fault(saved, own)

    def _fault(self, saved: SavedByProgram, own: bool) -> Fault | None:
        """What is wrong with this rank's part, which is fetched, or with its share of the parts whose ranks there are no longer.

        It is reported. Raises other `StorageError`, EndRequested.
        """
        rank, world = self._meeting.rank, self._meeting.world
        try:
            for part in sorted(saved.parts):
                if part == rank or len(saved.parts) == 1:
                    self._fetched(saved, part)
                elif part % world == rank:
                    self._check(saved, part)
        except (CheckpointCorrupt, StorageUnreadable, CheckpointAbsent) as fault:
            self._skip(fault, saved.folder, own)
            return fault
        return None

    def _check(self, saved: SavedByProgram, part: int) -> None:
        """Read a part, which the program may ask for later, and keep nothing.

        Raises CheckpointCorrupt, CheckpointRemoved, StorageError, EndRequested.
        """

        def look() -> None:
            if self._meeting.is_to_stop():
                raise EndRequested

        for name in saved.parts[part].values():
            tried(partial(check, saved, name, look))

    def _pick(self, before: Choice | None, least: int) -> Choice | None:
        """The newest checkpoint that is older than `before`, or the one that the job continues. One that a single rank saved is valid.

        Where a save has removed one meanwhile, a newer one than `before` is there. None of a step below `least` is picked before the pauses
        are over.
        """
        bounds, pauses_s = itertools.chain([before], itertools.repeat(None)), storage_tries.BACKOFF_S
        try:
            own = listed_again(lambda step: self._pick_own(next(bounds), step), pauses_s, least=least)
            return own or self._pick_other()
        except CheckpointAbsent as error:
            raise CheckpointError(str(error)) from error  # the other ranks know it as a choice that failed

    def _pick_own(self, before: Choice | None, least: int) -> Choice | None:
        """The newest of the job. Raises StorageUnreadable if a newer one cannot be read and no other is valid, CheckpointAbsent, also for
        one of a step below `least`."""
        unread: str | None = None if before is None else before["unread"]
        for path in tried(lambda: complete(self._root())):
            if before is not None and path.where >= before["where"]:
                continue
            refuse_older(path, least)
            fault: Fault | None = None
            try:
                saved = tried(partial(read_program, path))
            except (CheckpointCorrupt, StorageUnreadable) as error:
                fault = error
                self._skip(fault, path, own=True)
            else:
                if self._trainer not in (None, saved.trainer):
                    continue
                if len(saved.parts) == 1:
                    fault = self._fault(saved, own=True)
                if fault is None:
                    return {"where": path.where, "own": True, "every": len(saved.parts) > 1, "unread": unread}
            if isinstance(fault, CheckpointAbsent):
                raise fault
            if isinstance(fault, StorageUnreadable):
                unread = f"{path} cannot be read ({fault})"
        if unread is not None:
            raise StorageUnreadable(
                f"{unread}, and no other checkpoint is valid; repair the storage, or remove this folder."
            )
        return None

    def _pick_other(self) -> Choice | None:
        """The checkpoint that the job continues."""
        if self._resume is None:
            return None
        other = folder_at(self._resume)
        for path in tried(lambda: complete(other)) or [other]:
            saved = tried(partial(read_program, path))
            if self._trainer in (None, saved.trainer):
                if (fault := self._fault(saved, own=False)) is not None:
                    raise fault
                return {"where": path.where, "own": False, "every": len(saved.parts) > 1, "unread": None}
        return None

    def _skip(self, fault: Fault, path: Folder, own: bool) -> None:
        """Report, once, a checkpoint that is not used, unless it was removed.

        If it is corrupt and the job's own, it is noted in the storage, so that later saves remove it before valid ones.
        """
        if isinstance(fault, CheckpointAbsent) or path.where in self._reported:
            return
        self._reported.add(path.where)
        why, otherwise = f"{path} cannot be read ({fault})", "fails"
        if isinstance(fault, CheckpointCorrupt):
            why, otherwise = str(fault).partition(";")[0], "from the start"
            if own:
                with contextlib.suppress(OSError):
                    note_corrupt(path)
        message = f"{why}; the program continues from an older one, or {otherwise}."
        event = IncidentEvent(cause=fault.code, message=message, step=step_of(path) if own else None)
        self._emit(event.kind, to_json(event))


def _vote(fault: Fault | None) -> Vote:
    match fault:
        case None:
            return "valid"
        case CheckpointAbsent():
            return "removed"
        case StorageUnreadable():
            return "unread"
    return "corrupt"


def _final(fault: Fault | None, path: Folder) -> Exception:
    """The error of a choice for which there is no other. It is none after which this rank alone would list the checkpoints again."""
    if isinstance(fault, CheckpointAbsent):
        return CheckpointError(str(fault))
    return fault or CheckpointError(f"another rank cannot read its part of {path}, or it is damaged or removed.")
