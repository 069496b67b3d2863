"""Opens the folder at an address: a local path, or `s3://bucket/prefix`. Imports no torch, and s3fs only for a bucket."""

import operator
from functools import lru_cache, reduce
from pathlib import Path

from .folder import Folder
from .local_folder import LocalFolder
from .uri import BUCKET, address, is_bucket, refuse_unreachable


def folder_at(given: str | Path) -> Folder:
    """The folder at an address. Raises `Refusal` if this installation lacks the libraries for its storage."""
    where = address(given)
    if not is_bucket(where):
        return LocalFolder(where)
    refuse_unreachable(where)
    from .s3_folder import folder_in_bucket  # imports s3fs, which few need

    return folder_in_bucket(where)


def shared_folder_at(where: str) -> Folder:
    """The folder at an address. Folders of one bucket share a client: the first request of one costs half a second of CPU, and 14 MB."""
    if not is_bucket(where):
        return folder_at(where)
    bucket, *folders = where.removeprefix(BUCKET).split("/")
    return reduce(operator.truediv, folders, _bucket(bucket))


@lru_cache(maxsize=4)
def _bucket(name: str) -> Folder:
    return folder_at(BUCKET + name)
