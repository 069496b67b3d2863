"""Reads of storage for downloads: storage that does not answer delays other downloads, and no other request."""

from typing import Final

from ..blocking_calls import BlockingCalls
from ..settings import Settings
from .checkpoint_lists import CheckpointLists

#: Reads at once, and seconds until one has failed: a bucket is asked again for two minutes.
AT_ONCE: Final = 16
LIMIT_S: Final = 150.0


class StorageReads(BlockingCalls):
    """The reads of one process, of the storage that these settings name. `lists`: the files of checkpoints."""

    def __init__(self, settings: Settings, limit_s: float = LIMIT_S) -> None:
        super().__init__("reads of storage", AT_ONCE, limit_s)
        self.settings = settings
        self.lists = CheckpointLists(limit_s)
