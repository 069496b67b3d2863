"""Further tries of requests about a program's checkpoints, where storage does not answer."""

import errno
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ..storage.errors import StorageError

T = TypeVar("T")

#: Seconds before each further try.
BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0)
#: What a write raises where a shared file system does not answer. A read raises `StorageError`.
_SILENT: Final = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO)


def tried(do: Callable[[], T]) -> T:
    """The result, after further tries where storage does not answer. Raises what the last one raises."""
    for seconds in BACKOFF_S:
        try:
            return do()
        except OSError as error:
            if not _is_passing(error):
                raise
        time.sleep(seconds)
    return do()


def _is_passing(error: OSError) -> bool:
    return error.passing if isinstance(error, StorageError) else error.errno in _SILENT
