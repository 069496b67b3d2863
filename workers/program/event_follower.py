"""Follows the event files that TensorBoard writers in a rank's program write: their scalars are the rank's metrics."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..messages.metric_block import check_name, check_step
from .event_files import MOST_FILES, EventFile, EventFileInvalid, EventFolder, Processes
from .metric_batch import MetricBatch, OnMetrics

#: Seconds between two looks at the files.
LOOK_S: Final = 1.0
#: Maximum share of a core for finding new files: a folder may have many.
SHARE: Final = 1 / 300
#: Seconds to read what was written until the program's end.
END_S: Final = 30.0
#: Maximum number of warnings in the log.
MOST_WARNINGS: Final = 20


@contextmanager
def following(folder: Path | None, root: int, since: float, on_metrics: OnMetrics) -> Iterator[None]:
    """Follow the files below a folder while the block runs. When it has ended, `on_metrics` has been called with all that was written.

    `root`: whose descendants are the program's processes, which were started after `since` (unix seconds). A folder of None has no files.
    """
    if folder is None:
        yield
        return
    follower = _Follower(EventFolder(folder, Processes(root), since), MetricBatch(on_metrics))
    thread = threading.Thread(target=follower.run, name="TensorBoard", daemon=True)
    thread.start()
    try:
        yield
    finally:
        follower.end()
        thread.join(END_S + LOOK_S)


class _Follower:
    def __init__(self, folder: EventFolder, batch: MetricBatch) -> None:
        self._folder = folder
        self._batch = batch
        self._ending = threading.Event()
        self._deadline = float("inf")
        self._warned: set[str] = set()

    def run(self) -> None:
        try:
            from tensorboard.compat.proto import event_pb2  # noqa: F401
        except (ImportError, TypeError) as error:  # TypeError: of another version of protobuf
            self._warn(
                f"{self._folder.folder} is not followed, because tensorboard cannot be imported ({error}): install it"
            )
            return
        self._folder.look()  # this one costs more, because all processes are new
        next_look = 0.0
        while not self._ending.wait(LOOK_S):
            self._folder.processes.look()  # one that begins and ends between two looks at the folder has written files, too
            if time.monotonic() >= next_look:
                used = time.thread_time()
                self._folder.look()
                next_look = time.monotonic() + (time.thread_time() - used) / SHARE
            self._read()
        self._folder.look()
        self._read()

    def end(self) -> None:
        """Read what there is, and stop."""
        self._deadline = time.monotonic() + END_S
        self._ending.set()

    def _read(self) -> None:
        for file in self._folder.files.values():
            if file.ended:
                continue
            try:
                self._take(file)
            except FileNotFoundError:
                file.ended = True
            except (EventFileInvalid, OSError) as error:
                file.ended = True
                self._warn(f"{file.path} is not followed any more: {error}")
        self._batch.flush()
        if len(self._folder.files) >= MOST_FILES:
            self._warn(f"a rank follows {MOST_FILES:,} event files; further ones are left out: write fewer")

    def _take(self, file: EventFile) -> None:
        for tag, step, value in file.scalars():
            if time.monotonic() > self._deadline:
                self._warn(f"what is in event files was not all read within {END_S:g} s")
                return
            name = file.prefix + tag
            try:
                check_name(name)
                check_step(step)
            except ValueError as error:
                self._warn(f"scalar {ascii(name)[:80]} is left out: {error}")
                continue
            self._batch.add(name, file.steps.step(tag, step), value)

    def _warn(self, text: str) -> None:
        """Once."""
        if text not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(text)
            with contextlib.suppress(OSError):
                sys.stderr.write(f"shardyard: {text}\n")
                sys.stderr.flush()
