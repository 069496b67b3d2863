"""Local folders for what is sent to a bucket, such as an export. Those of killed processes are removed by the next export of this machine,
whatever its address, and by the next rank that starts.

Imports no library of buckets.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ..locked_folder import locked_folder, of_this_host, remove_unused

_PREFIX: Final = "shardyard-export-"


def upload_folder() -> AbstractContextManager[Path]:
    """A new folder, which is removed when the block ends. Those of killed processes are removed before. Raises OSError."""
    return locked_folder(of_this_host(_PREFIX))


def remove_unused_uploads() -> None:
    """Remove the folders of processes that were killed."""
    remove_unused(of_this_host(_PREFIX))
