"""Saves and fetches the checkpoints of a rank's program, in its trainer process, which has the libraries and credentials of the storage.

A request comes from `shardyard.checkpoint` or `shardyard.resume` (`checkpoints.py`), or from `ray_train_service.py` for what Ray Train
has stored. Its answer is plain data. A save is answered when its files are durable; the checkpoint's event is emitted before.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ...strategies.layout import Refusal
from ..checkpoint.errors import CheckpointCorrupt, CheckpointError
from ..checkpoint.program_files import (
    MOST_STEP,
    Kind,
    Part,
    SavedByProgram,
    Source,
    adopt_part,
    discard,
    fetch,
    publish,
    read_program,
    sources,
    write_part,
)
from ..checkpoint.retention import complete, folder, note_corrupt, note_valid, step_of
from ..messages.event import CheckpointEvent, IncidentEvent, to_json
from ..regular_files import UnfitFile
from ..storage.errors import StorageError, StorageUnreadable
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from ..trainer.event_outbox import EmitEvent
from .program import Program
from .rank_meeting import CheckpointMismatch, RankMeeting, Vote
from .shared_folder import EndRequested, FolderUnavailable, remove_unused, shared_folder

T = TypeVar("T")

#: Seconds before each further try of storage that did not answer.
BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0)
#: Seconds to wait for another rank of the node that fetches, and for which an unused copy is kept.
WAIT_S: Final = 3600.0
KEPT_S: Final = 3600.0
#: Free bytes that the file system is to have beyond a copy.
_SPARE_BYTES: Final = 256 << 20

Answer = dict[str, Any]
#: Why a checkpoint is not used. One that cannot be read may be valid.
Fault = CheckpointCorrupt | StorageUnreadable


@dataclass
class _Start:
    """What this rank's program has asked for since its launcher last started it. Earlier parts and answers count for nothing."""

    meeting: RankMeeting
    saved: dict[int, str] = field(default_factory=dict)  # the newest step that all ranks saved → this rank's content
    unpublished: dict[int, list[Part]] = field(default_factory=dict)  # a step with all parts here, but no manifest
    #: Of each trainer that has asked; of None: the program.
    resumed: dict[int | None, SavedByProgram | None] = field(default_factory=dict)


class CheckpointService:
    """Answers one rank's requests, one at a time. Copies that it fetched stay until the launcher's next start, or `close`."""

    def __init__(self, program: Program, meeting: RankMeeting, emit: EmitEvent) -> None:
        self._program, self._meeting, self._emit = program, meeting, emit
        if program.cache:
            with contextlib.suppress(OSError):  # a program then writes its states elsewhere
                Path(program.cache).mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._copies = ExitStack()
        self._held: set[Path] = set()  # of this rank
        self._starts: dict[int, _Start] = {}  # by the launcher's count of restarts
        self._newest = 0  # that count, of the newest request
        self._start: _Start  # that of the request which is carried out
        self._folder: Folder | None = None

    def close(self) -> None:
        """Let other ranks remove the copies."""
        self._copies.close()

    def answer(self, request: dict[str, Any], handles: list[int]) -> Answer:
        """Carry out a request. `handles`: descriptors that came with it. Every failure becomes the answer's `error`."""
        try:
            restarts = self._newest = int(request.get("restarts", 0))
            with self._lock:  # a request of processes that have ended gives way
                self._start = self._after(restarts)
                if "save" in request:
                    return self._save(request["save"], handles)
                if "adopt" in request:
                    return self._adopt(**request["adopt"])
                if "newest" in request:
                    found = _tried(lambda: complete(self._root()))
                    return {"step": step_of(found[0]) if found else None}
                return self._resume(request["resume"].get("rank"), request["resume"].get("trainer"))
        except EndRequested:
            return {"error": "the job is to end."}
        except (CheckpointError, StorageError, FolderUnavailable, Refusal, UnfitFile) as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": f"{error}; make room, or repair the storage."}
        except RuntimeError as error:  # what torch's store raises
            first = str(error).partition("\n")[0]
            return {"error": f"rank 0 does not answer, and may have ended: {type(error).__name__}: {first}"}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            return {"error": f"the request cannot be read: {error!r}; use one version of Shardyard."}

    def _after(self, restarts: int) -> _Start:
        """What was asked after this many restarts by the launcher, which has ended the processes before."""
        if restarts not in self._starts:
            if restarts > max(self._starts, default=restarts):
                self._copies.close()
                self._held.clear()
            self._starts[restarts] = _Start(self._meeting.after(restarts, lambda: self._newest != restarts))
        return self._starts[restarts]

    # Saving.

    def _save(self, request: dict[str, Any], handles: list[int]) -> Answer:
        step, every, kind = int(request["step"]), bool(request["every"]), request["kind"]
        if not 0 <= step <= MOST_STEP or kind not in ("files", "state"):
            raise CheckpointError(f"step is {step}; a step is between 0 and {MOST_STEP:,}.")
        files = [Source(request["path"], handles[0])] if handles else sources(Path(request["path"]))
        root, began = self._root(), time.monotonic()
        self._start.meeting.claim(step, every)
        path = folder(root, step)
        part = _tried(lambda: write_part(path, self._meeting.rank, files))
        parts = [part]
        if every:
            self._gather(path, step, part)
            parts = self._start.unpublished.get(step, [])
        if parts:
            self._publish(step, kind, parts, began, _tried(lambda: self._newest_of_others(None)))
            self._start.unpublished.clear()
        return {"path": str(path)}

    def _adopt(self, where: str, step: int, trainer: int) -> Answer:
        """Make what Ray Train has stored at an address a checkpoint, which this rank alone saves.

        If its step is that of another trainer's newest checkpoint, it becomes the next one, so that both trainers can continue.
        """
        root, began = self._root(), time.monotonic()
        others = _tried(lambda: self._newest_of_others(trainer))
        while step in others:
            step += 1
        if not 0 <= step <= MOST_STEP:
            raise CheckpointError(f"step is {step}; a step is between 0 and {MOST_STEP:,}.")
        self._start.meeting.claim(step, every=False)
        path = folder(root, step)
        part = _tried(lambda: adopt_part(path, self._meeting.rank, folder_at(where), trainer))
        self._publish(step, "files", [part], began, others)
        return {"path": str(path)}

    def _newest_of_others(self, trainer: int | None) -> set[int]:
        """The steps of the newest checkpoints of all other trainers of Ray Train, which continue from them when the driver starts again.

        And those that cannot be read, which may be some of them.
        """
        found: dict[int, int] = {}
        unread = set[int]()
        for path in complete(self._root()) if self._program.ray is not None else []:
            with contextlib.suppress(CheckpointError):  # another rank may remove it meanwhile
                try:
                    own = (saved := read_program(path)).trainer
                except StorageUnreadable:
                    unread.add(step_of(path))
                    continue
                if own is not None and own != trainer:
                    found.setdefault(own, saved.step)
        return unread | {*found.values()}

    def _gather(self, path: Folder, step: int, part: Part) -> None:
        """Add this rank's part to those of all. Raises CheckpointMismatch."""
        if step in self._start.saved:
            self._refuse_other(path, step, part)
            return
        self._start.saved = {step: part.content}
        gathered = self._start.meeting.gather(step, json.dumps(part.to_json()))
        if gathered is not None:
            self._start.unpublished = {step: [Part.from_json(json.loads(one)) for one in gathered]}

    def _refuse_other(self, path: Folder, step: int, part: Part) -> None:
        """This rank has saved the step already. The same once more changes nothing. Raises CheckpointMismatch."""
        discard(path, [file.name for file in part.files])
        if self._start.saved[step] != part.content:
            rank = self._meeting.rank
            raise CheckpointMismatch(
                f"rank {rank} has saved other content as step {step} already; save a new step with another number."
            )

    def _publish(self, step: int, kind: Kind, parts: list[Part], began: float, others: set[int]) -> None:
        """Make the parts a checkpoint. `others`: steps of which retention spares the checkpoints."""
        resumed = {of: one.step for of, one in self._start.resumed.items() if one is not None}
        spared = others | {own for of, own in resumed.items() if not self._start.meeting.all_fetched(of)}
        done = _tried(lambda: publish(self._root(), step, kind, parts, self._program.keep, spared))
        seconds = time.monotonic() - began
        event = CheckpointEvent(
            step=step,
            path=done.path,
            bytes=done.bytes,
            seconds=seconds,
            held_s=seconds if parts[0].trainer is None else 0.0,  # the workers of Ray Train go on meanwhile
            kept=done.kept,
            digest=done.digest,
        )
        self._emit(event.kind, to_json(event))

    # Resuming.

    def _resume(self, rank: int | None, trainer: int | None) -> Answer:
        """The newest checkpoint of a trainer of Ray Train; of None: the newest of all."""
        if trainer not in self._start.resumed:
            self._start.resumed[trainer] = self._chosen(trainer)
        if (saved := self._start.resumed[trainer]) is None:
            return {"step": None}
        part = saved.part(rank, self._meeting.rank)
        place = self._fetched(saved, part)
        parts = sorted(saved.parts)
        return {"step": saved.step, "path": str(place), "kind": saved.kind, "rank": part, "ranks": parts}

    def _chosen(self, trainer: int | None) -> SavedByProgram | None:
        """Agree with the other ranks on the newest checkpoint that is valid."""
        number, before = 0, None
        while True:
            choice = self._start.meeting.picked(number, partial(self._pick, before, trainer), trainer)
            if choice is None:
                return None
            saved = _tried(partial(read_program, folder_at(choice["where"])))
            fault = self._fault(saved, choice["own"])
            vote: Vote = "valid" if fault is None else "unread" if isinstance(fault, StorageUnreadable) else "corrupt"
            if len(saved.parts) > 1:
                vote = self._start.meeting.agree(number, vote, trainer)
            if vote == "valid":
                self._start.meeting.fetched(trainer)
                if choice["own"]:
                    with contextlib.suppress(OSError):
                        note_valid(saved.folder)
                return saved
            if len(saved.parts) == 1 or not choice["own"]:
                raise fault or CheckpointError(
                    f"another rank cannot read its part of {saved.folder}, or it is damaged."
                )
            if vote == "unread":
                choice["unread"] = f"{saved.folder} cannot be read"
            number, before = number + 1, choice

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
        except (CheckpointCorrupt, StorageUnreadable) as fault:
            self._skip(fault, saved.folder, step_of(saved.folder) if own else None)
            return fault
        return None

    def _check(self, saved: SavedByProgram, part: int) -> None:
        """Read a part, which the program may ask for later, and keep nothing. Raises CheckpointCorrupt, StorageError, EndRequested."""

        def look() -> None:
            if self._start.meeting.is_to_stop():
                raise EndRequested

        for name in saved.parts[part].values():
            if not _tried(partial(_is_intact, saved, name, look)):
                raise CheckpointCorrupt(
                    f"{saved.folder} is corrupt: {name} does not match its checksum; use an older checkpoint."
                )

    def _pick(self, before: dict[str, Any] | None, trainer: int | None) -> dict[str, Any] | None:
        """The newest checkpoint that is older than `before`, or the one that the job continues. One that a single rank saved is valid."""
        found = _tried(lambda: complete(self._root())) if before is None or before["own"] else []
        names = [path for path in found if before is None or path.where < before["where"]]
        unread: str | None = None if before is None else before["unread"]
        for path in names:
            fault: Fault | None = None
            try:
                saved = _tried(partial(read_program, path))
            except (CheckpointCorrupt, StorageUnreadable) as error:
                fault = error
                self._skip(fault, path, step_of(path))
            else:
                if trainer not in (None, saved.trainer):
                    continue
                if len(saved.parts) == 1:
                    fault = self._fault(saved, own=True)
                if fault is None:
                    return {"where": path.where, "own": True, "unread": unread}
            if isinstance(fault, StorageUnreadable):
                unread = f"{path} cannot be read ({fault})"
        if unread is not None:
            raise StorageUnreadable(
                f"{unread}, and no other checkpoint is valid; repair the storage, or remove this folder."
            )
        if self._program.resume is None:
            return None
        other = folder_at(self._program.resume)
        for path in _tried(lambda: complete(other)) or [other]:
            saved = _tried(partial(read_program, path))
            if trainer in (None, saved.trainer):
                if (fault := self._fault(saved, own=False)) is not None:
                    raise fault
                return {"where": path.where, "own": False, "unread": None}
        return None

    def _skip(self, fault: Fault, path: Folder, step: int | None) -> None:
        """Report a checkpoint that is not used. `step`: of one of this job.

        If that is corrupt, it is noted in the storage, so that later saves remove it before valid ones.
        """
        why, otherwise = f"{path} cannot be read ({fault})", "fails"
        if isinstance(fault, CheckpointCorrupt):
            why, otherwise = str(fault).partition(";")[0], "from the start"
            if step is not None:
                with contextlib.suppress(OSError):
                    note_corrupt(path)
        message = f"{why}; the program continues from an older one, or {otherwise}."
        event = IncidentEvent(cause=fault.code, message=message, step=step)
        self._emit(event.kind, to_json(event))

    def _fetched(self, saved: SavedByProgram, rank: int) -> Path:
        """The folder with the part of `rank`, on this node. Raises CheckpointError, StorageError, EndRequested."""
        digest = saved.manifest.sha256[:16]
        copies = Path(self._program.cache) / "checkpoints"
        place = copies / f"{self._program.job}-{saved.step:08d}-{digest}-{rank:05d}"
        if place in self._held:
            return place
        size = sum(saved.manifest.files[name].bytes for name in saved.parts[rank].values())

        def make(_: int) -> None:
            remove_unused(copies, KEPT_S, size + _SPARE_BYTES)
            _tried(lambda: fetch(saved, rank, place))

        self._copies.enter_context(shared_folder(place, make, place.is_dir, self._start.meeting.is_to_stop, WAIT_S))
        self._held.add(place)
        return place

    def _root(self) -> Folder:
        if not self._program.checkpoints:
            raise CheckpointError("this job has no storage for checkpoints; submit it again.")
        if self._folder is None:  # each new client of a bucket costs half a second of CPU
            self._folder = folder_at(self._program.checkpoints)
        return self._folder


@contextlib.contextmanager
def answering(program: Program, meeting: RankMeeting, emit: EmitEvent) -> Iterator[CheckpointService]:
    """A service that is closed at the end."""
    with contextlib.closing(CheckpointService(program, meeting, emit)) as service:
        yield service


def _is_intact(saved: SavedByProgram, name: str, beat: Callable[[], None]) -> bool:
    """Whether a stored file is as it was saved. Raises StorageError, and what `beat` raises."""
    file = saved.manifest.files[name]
    try:
        return saved.folder.sha256(name, file.bytes, beat) == file.sha256
    except StorageError:
        raise
    except OSError:
        return False


def _tried(do: Callable[[], T]) -> T:
    """The result, after further tries where storage does not answer. Raises what the last one raises."""
    for seconds in BACKOFF_S:
        try:
            return do()
        except StorageError as error:
            if not error.passing:
                raise
        time.sleep(seconds)
    return do()
