"""Opens the folder at an address: a local path, or `s3://bucket/prefix`. Imports no torch, and s3fs only for a bucket."""

from pathlib import Path

from .folder import Folder
from .local_folder import LocalFolder
from .uri import address, is_bucket, refuse_unreachable


def folder_at(given: str | Path) -> Folder:
    """The folder at an address. Raises `Refusal` if this installation lacks the libraries for its storage."""
    where = address(given)
    if not is_bucket(where):
        return LocalFolder(where)
    refuse_unreachable(where)
    from .s3_folder import folder_in_bucket  # imports s3fs, which few need

    return folder_in_bucket(where)
