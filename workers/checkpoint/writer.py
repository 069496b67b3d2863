"""Writes a checkpoint: each rank writes its file to the storage, then rank 0 writes the manifest.

It runs in a thread of every rank's trainer, on a process group of its own, so that its collectives do not mix with the training's.
All ranks get the same outcome. An error of the storage is an outcome, too; the files written so far are removed then. If the disk is full,
rank 0 removes what earlier saves have left, and all ranks try once more.
"""

import contextlib
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from ..storage.errors import StorageError
from ..storage.folder import Folder
from .commit import commit
from .errors import CheckpointError
from .manifest import MANIFEST, File, Manifest, Tensor, read
from .retention import folder, is_full, make_room
from .staging_buffer import StagingBuffer


@dataclass(frozen=True)
class Order:
    """What to save: the training state of `step` beside the buffer. `backoff_s`: seconds before each further try of a failed write."""

    step: int
    training: Mapping[str, Any]
    backoff_s: Sequence[float]


@dataclass(frozen=True)
class Written:
    """A complete checkpoint, or the storage's error message."""

    path: str
    bytes: int = 0
    error: str | None = None
    kept: tuple[int, ...] | None = None  # steps of the job's complete checkpoints after it; None: not known
    digest: str | None = None  # checksum of the manifest


@dataclass(frozen=True)
class _Part:
    """One rank's file, or its error."""

    tensors: dict[str, Tensor]
    files: dict[str, File]
    error: str | None
    is_full: bool = False  # the disk


class Writer:
    """Writes `buffer` below `root`, and keeps the newest `keep` checkpoints there. `edition`: an id in the names of this run's files."""

    def __init__(self, root: Folder, keep: int, buffer: StagingBuffer, edition: str, group: dist.ProcessGroup) -> None:
        self._root, self._keep = root, keep
        self._buffer, self._group = buffer, group
        self._rank = dist.get_rank()
        self._edition = edition
        self._name = f"rank-{self._rank:05d}-{edition}.safetensors"

    def write(self, order: Order) -> Written:
        """Collective among the writers. They try equally often, whatever their clocks."""
        for seconds in (0.0, *order.backoff_s):
            time.sleep(seconds)
            written, has_more_room = self._try(order)
            if has_more_room:
                written, _ = self._try(order)
            if written.error is None:
                return written
        self._remove_own(folder(self._root, order.step))
        return written

    def _try(self, order: Order) -> tuple[Written, bool]:
        """The outcome, and whether rank 0 has made room for another try."""
        path = folder(self._root, order.step)
        try:
            part = _Part(self._buffer.tensors, self._write_own(path), None)
        except OSError as error:
            part = _Part({}, {}, f"rank {self._rank}: {error}", is_full(error))
        parts: list[Any] | None = [None] * dist.get_world_size() if self._rank == 0 else None
        dist.gather_object(part, parts, group=self._group)
        outcome = [(Written(str(path)), False) if parts is None else self._commit(path, order, parts)]
        dist.broadcast_object_list(outcome, src=0, group=self._group)
        return outcome[0]

    def _write_own(self, path: Folder) -> dict[str, File]:
        """Write this rank's file and return it by name; empty if the rank owns no shards."""
        if not self._buffer.slices:
            return {}
        content = self._buffer.content()
        path.write(self._name, content)
        checksum = hashlib.sha256(content).hexdigest()
        return {self._name: File(len(content), checksum, tuple(self._buffer.slices))}

    def _remove_own(self, path: Folder) -> None:
        """Remove this rank's file. Rank 0 first removes a manifest of this run: a write that failed may still have arrived."""
        try:
            if self._rank == 0 and any(self._edition in name for name in read(path).files):
                path.remove(MANIFEST)
        except StorageError:
            return  # storage that does not answer cannot remove anything
        except (OSError, CheckpointError):
            pass  # there is no manifest
        with contextlib.suppress(OSError):
            path.remove(self._name)

    def _commit(self, path: Folder, order: Order, parts: Sequence[_Part]) -> tuple[Written, bool]:
        """Write the manifest, on rank 0, if every rank has written its file. If a disk is full, make room."""
        errors = [part.error for part in parts if part.error is not None]
        if errors:
            full = any(part.is_full for part in parts)
            return Written(str(path), error=errors[0]), full and self._make_room(order)
        manifest = _manifest(order, parts)
        try:
            digest, kept = commit(self._root, self._keep, manifest)
        except OSError as error:
            return Written(str(path), error=f"{MANIFEST}: {error}"), is_full(error) and self._make_room(order)
        except CheckpointError as error:
            return Written(str(path), error=str(error).partition(";")[0]), False
        return Written(str(path), manifest.bytes, kept=kept, digest=digest), False

    def _make_room(self, order: Order) -> bool:
        """Whether there was any. No rank of this run writes: it saves one step at a time, in order, and all have ended this try."""
        return make_room(self._root, order.step, self._edition)


def _manifest(order: Order, parts: Sequence[_Part]) -> Manifest:
    tensors: dict[str, Tensor] = {}
    files: dict[str, File] = {}
    for part in parts:
        tensors |= part.tensors
        files |= part.files
    return Manifest(order.step, order.training, tensors, files)
