"""Why a node has not the files of a job. The message names the source, the file if one is to blame, and a remedy."""

from typing import Final

#: Another try would end in the same way: the source is missing, denied, changed or unfit.
NOT_FETCHED: Final = "files_not_fetched"
#: The source does not answer.
UNREACHABLE: Final = "files_unreachable"
#: The node's disk, or its cache within the budget, has no room now.
NO_ROOM: Final = "files_no_room"


class FilesNotFetched(Exception):
    """A source cannot be fetched. `cause`: one of the codes above, or of `cache_disk.py`."""

    def __init__(self, why: str, cause: str = NOT_FETCHED) -> None:
        super().__init__(why)
        self.cause = cause
