"""Further tries of requests about a program's checkpoints, where storage does not answer."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

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
