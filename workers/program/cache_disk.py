"""Causes of a failure for which the disk with a node's cache is to blame, and not the program: another node may do better."""

import errno
from typing import Final

from ..storage.errors import StorageError

#: It has no room.
FULL: Final = "cache_disk_full"
#: It cannot be read or written.
FAILED: Final = "cache_disk_failed"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Errors of a name, or of what has it already: the job chose the name.
_OF_NAME: Final = frozenset(
    {
        *(errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP),
        *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR),
    }
)


def cause_of(error: OSError) -> str | None:
    """The cause, for an error of an operation in the cache. None if the disk is not to blame."""
    if isinstance(error, StorageError) or error.errno is None or error.errno in _OF_NAME:
        return None
    return FULL if error.errno in _NO_ROOM else FAILED
