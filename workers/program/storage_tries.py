"""Further tries of requests about a program's checkpoints: storage that does not answer, and checkpoints that are removed meanwhile."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from ..checkpoint.errors import CheckpointAbsent
from ..storage.errors import StorageError

T = TypeVar("T")

#: Seconds before each further try.
BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0)


def tried(do: Callable[[], T]) -> T:
    """The result, after further tries where storage does not answer. Raises what the last one raises."""
    for seconds in BACKOFF_S:
        try:
            return do()
        except StorageError as error:
            if not error.passing:
                raise
        time.sleep(seconds)
    return do()


def listed_again(find: Callable[[], T]) -> T:
    """What `find` returns, which lists checkpoints. Where a save has removed one meanwhile a newer one is there, so it is called again."""
    for seconds in BACKOFF_S:
        try:
            return find()
        except CheckpointAbsent:
            time.sleep(seconds)
    return find()
