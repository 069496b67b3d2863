"""Saving while training continues: param shards are copied, and a thread writes the copy while the next steps compute.

One save at a time: the next waits for the one before. The training thread reports how a save ended.
"""

import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from ...strategies.activation_memory.state_file import StateFile
from ...strategies.layout import own_clocks
from ...strategies.mesh import Mesh
from ...strategies.param_shard import ParamShard
from ...strategies.thread_device import use_device
from ..messages.rank_status import BACKGROUND
from ..storage.folder import Folder
from .retention import folder
from .staging_buffer import StagingBuffer
from .writer import Order, Writer

THREAD: Final = f"{BACKGROUND} checkpoint"
#: Time for which the ranks' writers wait for the slowest storage.
WRITE: Final = timedelta(hours=1)
#: Seconds between two signs of life of a rank that waits for its own write.
_BEAT_S: Final = 10.0


@dataclass(frozen=True)
class Saved:
    """How a save ended: `seconds` until the checkpoint was complete, for `held_s` of which training was paused."""

    step: int
    path: str
    bytes: int
    seconds: float
    held_s: float
    error: str | None  # the storage's error message; then there is no checkpoint
    kept: tuple[int, ...] | None = None  # steps of the job's complete checkpoints after it; None: not known
    digest: str | None = None  # checksum of the manifest


class Saver:
    """Saves one rank's share of checkpoints below `root`, and keeps the newest `keep` of them.

    If `file` is given, the copy of the state that is being written is in it. Raises `StateDiskError` if it has no room.
    """

    def __init__(
        self, root: Folder, keep: int, shards: Sequence[ParamShard], mesh: Mesh, file: StateFile | None = None
    ) -> None:
        self._root, self._keep = root, keep
        self._shards = [shard for shard in shards if shard.owned(mesh)]
        self._device = mesh.device
        self._goes_on = own_clocks(mesh.layout)  # without a worker that is lost, up to the next meeting
        # On a disk its room is taken now: a full disk is found before the first step.
        self._buffer = None if file is None else StagingBuffer(self._shards, self._device, file)
        self._writer: Writer | None = None
        self._thread: threading.Thread | None = None
        self._ended: queue.SimpleQueue[Saved | Exception] = queue.SimpleQueue()

    @property
    def missing(self) -> int:
        """Bytes of host memory that the first save takes, about."""
        return 0 if self._buffer is not None else sum(shard.tensor.nbytes for shard in self._shards)

    def save(
        self,
        step: int,
        training: Mapping[str, Any],
        backoff_s: Sequence[float] = (),
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to save the state as it is now. All ranks call it alike; the first time it is collective.

        `backoff_s`: seconds before each further try of a failed write. `beat`: as of `wait`, for the save before.
        """
        began = time.monotonic()
        buffer, writer = self._prepared()
        self.wait(beat)
        buffer.take()
        held_s = time.monotonic() - began
        arguments = (writer, Order(step, training, backoff_s), began, held_s)
        self._thread = threading.Thread(target=self._write, args=arguments, name=THREAD, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Call it before the state changes: makes the copy come first."""
        if self._buffer is not None:
            self._buffer.settle()

    def wait(self, beat: Callable[[], None] = lambda: None) -> None:
        """Wait until no save is being written. `beat` is called now and then, for as long as the other ranks' writers wait, too."""
        if self._thread is not None:
            deadline = time.monotonic() + WRITE.total_seconds()
            while self._thread.is_alive():
                if time.monotonic() < deadline:
                    beat()
                self._thread.join(_BEAT_S)
            self._thread = None

    def ended(self) -> list[Saved]:
        """The saves that have ended since the last call. Raises an exception that is no error of the storage."""
        found = []
        while not self._ended.empty():
            saved = self._ended.get()
            if isinstance(saved, Exception):
                raise saved
            found.append(saved)
        return found

    def _write(self, writer: Writer, order: Order, began: float, held_s: float) -> None:
        try:
            use_device(self._device)
            written = writer.write(order)
            seconds = time.monotonic() - began
            self._ended.put(Saved(order.step, seconds=seconds, held_s=held_s, **vars(written)))
        except Exception as error:  # noqa: BLE001  (top of a thread: `ended` raises it)
            if not (self._goes_on and isinstance(error, RuntimeError)):
                self._ended.put(error)
                return
            seconds, path = time.monotonic() - began, str(folder(self._root, order.step))
            self._ended.put(Saved(order.step, path, 0, seconds, held_s, error=f"a rank was lost: {error}"))

    def _prepared(self) -> tuple[StagingBuffer, Writer]:
        """What all saves of a run share: this rank's memory, the writers' group, and an id in the names of its files."""
        if self._buffer is None or self._writer is None:
            edition = [uuid.uuid4().hex[:8]]
            dist.broadcast_object_list(edition, src=0)
            group = dist.new_group(backend="gloo", timeout=WRITE, group_desc=BACKGROUND)
            self._buffer = self._buffer or StagingBuffer(self._shards, self._device)
            self._writer = Writer(self._root, self._keep, self._buffer, edition[0], group)
        return self._buffer, self._writer
