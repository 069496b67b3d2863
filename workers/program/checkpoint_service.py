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
from pathlib import Path
from typing import Any, Final, TypeVar

from ...strategies.layout import Refusal
from ..checkpoint.errors import CheckpointError
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
from ..checkpoint.retention import complete, folder, is_full, make_room, step_of
from ..messages.event import CheckpointEvent, to_json
from ..regular_files import UnfitFile
from ..storage.errors import StorageError, StorageUnreadable
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from ..trainer.event_outbox import EmitEvent
from .program import Program
from .rank_meeting import CheckpointMismatch, RankMeeting
from .resume_choice import ResumeChoice
from .shared_folder import EndRequested, FolderUnavailable, remove_unused, shared_folder
from .storage_tries import tried

T = TypeVar("T")

#: Seconds to wait for another rank of the node that fetches, and for which an unused copy is kept.
WAIT_S: Final = 3600.0
KEPT_S: Final = 3600.0
#: Free bytes that the file system is to have beyond a copy.
_SPARE_BYTES: Final = 256 << 20

Answer = dict[str, Any]


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
                    found = tried(lambda: complete(self._root()))
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
        edition = self._start.meeting.edition()
        part = self._with_room(step, lambda: write_part(path, self._meeting.rank, files, edition))
        parts = [part]
        if every:
            self._gather(path, step, part)
            parts = self._start.unpublished.get(step, [])
        if parts:
            self._publish(step, kind, parts, began, tried(lambda: self._newest_of_others(None)))
            self._start.unpublished.clear()
        return {"path": str(path)}

    def _adopt(self, where: str, step: int, trainer: int) -> Answer:
        """Make what Ray Train has stored at an address a checkpoint, which this rank alone saves.

        If its step is that of another trainer's newest checkpoint, it becomes the next one, so that both trainers can continue.
        """
        root, began = self._root(), time.monotonic()
        others = tried(lambda: self._newest_of_others(trainer))
        while step in others:
            step += 1
        if not 0 <= step <= MOST_STEP:
            raise CheckpointError(f"step is {step}; a step is between 0 and {MOST_STEP:,}.")
        self._start.meeting.claim(step, every=False)
        path = folder(root, step)
        edition = self._start.meeting.edition()
        part = self._with_room(step, lambda: adopt_part(path, self._meeting.rank, folder_at(where), trainer, edition))
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
        done = self._with_room(step, lambda: publish(self._root(), step, kind, parts, self._program.keep, spared))
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

    def _with_room(self, step: int, write: Callable[[], T]) -> T:
        """The result of a write for a step. If the disk is full, what other saves have left is removed for one more try.

        All ranks write to the same storage, so one of them removes it.
        """
        meeting = self._start.meeting

        def make() -> bool:
            return make_room(self._root(), step, meeting.edition(), meeting.is_over)

        try:
            return tried(write)
        except OSError as error:
            if not (is_full(error) and meeting.has_room(step, make)):
                raise
        return tried(write)

    # Resuming.

    def _resume(self, rank: int | None, trainer: int | None) -> Answer:
        """The newest checkpoint of a trainer of Ray Train; of None: the newest of all."""
        if trainer not in self._start.resumed:
            meeting, resume = self._start.meeting, self._program.resume
            choice = ResumeChoice(self._root, resume, meeting, trainer, self._fetched, self._emit)
            self._start.resumed[trainer] = choice.chosen()
        if (saved := self._start.resumed[trainer]) is None:
            return {"step": None}
        part = saved.part(rank, self._meeting.rank)
        place = self._fetched(saved, part)
        parts = sorted(saved.parts)
        return {"step": saved.step, "path": str(place), "kind": saved.kind, "rank": part, "ranks": parts}

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
            tried(lambda: fetch(saved, rank, place))

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
