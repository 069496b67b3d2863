"""Checks what takes long of a spec without blocking the event loop: in threads (`blocking_calls.py`), a few specs at a time, up to a time
limit. That is the files that it names, and the search for its layout.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from ..workers.data.errors import DataError
from ..workers.regular_files import UnfitFile
from .blocking_calls import BlockingCalls
from .errors import (
    AdvisorBusy,
    EmptyCorpus,
    FilesTooSlow,
    FileTooLarge,
    InvalidSpec,
    MissingFile,
    NotAFile,
    ShardyardError,
    TooManyFiles,
)

T = TypeVar("T")

#: Specs whose files are checked at once, and specs that may wait for that.
AT_ONCE: Final = 3
WAITING: Final = 32
#: Seconds until a spec is refused, including the wait for its turn.
LIMIT_S: Final = 10.0
#: Seconds until a spec is refused whose layout is searched, including the wait for its turn: below the 30 that a client waits.
SEARCH_S: Final = 25.0
#: Seconds for the folder walks of one spec, so that they end before that.
WALK_S: Final = 8.0

_BY_CODE: Final[dict[str, type[ShardyardError]]] = {
    "missing_file": MissingFile,
    "no_match": MissingFile,
    "unreadable_file": MissingFile,
    "not_a_file": NotAFile,
    "file_too_large": FileTooLarge,
    "too_many_files": TooManyFiles,
    "too_slow": FilesTooSlow,
    "empty_corpus": EmptyCorpus,
    "corpus_too_short": EmptyCorpus,
}


class SpecFiles:
    """The threads of one process that check specs."""

    def __init__(self, limit_s: float = LIMIT_S, search_s: float = SEARCH_S) -> None:
        self._limit_s, self._search_s = limit_s, search_s
        self._calls = BlockingCalls("files of a spec", AT_ONCE, limit_s)
        self._searches = BlockingCalls("layout of a spec", 1, search_s)

    def apart(self) -> "SpecFiles":
        """One with turns of its own for files, so that files that do not answer delay no others. The turn for searches is shared."""
        found = SpecFiles(self._limit_s, self._search_s)
        found._searches = self._searches
        return found

    async def look(self, work: Callable[[float], T]) -> T:
        """Run `work` with the deadline (`time.monotonic`) of its folder walks. Returns and raises as `work`.

        Raises FilesTooSlow after the time limit, where too many wait, or no thread can be started; `work` then ends when it can.
        """
        if self._calls.waiting == WAITING:
            raise FilesTooSlow(f"The files of {WAITING} other specs are waiting to be checked.")
        try:
            return await self._calls.do(lambda: work(time.monotonic() + WALK_S))
        except TimeoutError:
            raise FilesTooSlow(
                f"The files that the spec names could not be checked within {self._limit_s:g} s."
            ) from None
        except BlockingIOError as error:
            raise FilesTooSlow(f"The files that the spec names could not be checked: {error.strerror}.") from None

    async def search(self, work: Callable[[], T]) -> T:
        """Run `work`, which searches a layout, when no other search runs: each takes a core, which requests need, too.

        Returns and raises as `work`. Raises AdvisorBusy after the time limit, or if no thread can be started; `work` then ends when it can.
        """
        try:
            return await self._searches.do(work)
        except TimeoutError:
            raise AdvisorBusy(f"The layout could not be searched within {self._search_s:g} s.") from None
        except BlockingIOError as error:
            raise AdvisorBusy(f"The layout could not be searched: {error.strerror}.") from None


def refusal(error: DataError) -> ShardyardError:
    """The service's error for files that trainers could not use."""
    return _BY_CODE.get(error.code, InvalidSpec)(error.message, field=f"train.{error.field}", remedy=error.remedy)


def unfit(error: UnfitFile, field: str) -> ShardyardError:
    """The service's error for a path that is not a file, named by `field`."""
    return _BY_CODE[error.code](error.message, field=field, remedy=error.remedy)
