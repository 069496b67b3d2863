"""Which errors are the disk's, and which are those of a name that the job chose, or of storage elsewhere."""

import errno

import pytest

from shardyard.workers.program.cache_disk import FAILED, FULL, cause_of
from shardyard.workers.storage.errors import StorageUnreachable


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (errno.ENOSPC, FULL),
        (errno.EDQUOT, FULL),
        (errno.EIO, FAILED),
        (errno.EROFS, FAILED),
        (errno.EACCES, FAILED),
        (errno.ENAMETOOLONG, None),
        (errno.EEXIST, None),
    ],
)
def test_an_error_of_the_disk_has_its_cause(code: int, cause: str | None) -> None:
    assert cause_of(OSError(code, "an error", "/cache")) == cause


def test_an_error_of_storage_is_not_the_caches() -> None:
    assert cause_of(StorageUnreachable(errno.EIO, "away")) is None and cause_of(OSError("no number")) is None
