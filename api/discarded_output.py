"""Output for which no reader is left: what is printed into it is discarded, since it would raise errors."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def silence() -> None:
    """Discard what is printed later, except into a file: a closed terminal raises errors, and so does a pipe to what ended with it."""
    for number in (1, 2):
        with suppress(OSError):  # it was closed from the start
            if not stat.S_ISREG(os.fstat(number).st_mode):
                discard(number)


def discard(descriptor: int) -> None:
    """Discard what is written to `descriptor` later."""
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), descriptor)
