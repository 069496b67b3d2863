"""Tokenises the corpora of waiting jobs while others train, so that a gang does not hold its devices while it reads text.

Only the front of the queue, one corpus at a time, and each corpus once. Nothing waits for it. If a corpus cannot be read here, the job
itself reports that.
"""

import json
import logging
from collections.abc import Mapping, Set
from typing import Any, Final

from ..cluster.interface import Cluster
from ..errors import ClusterError
from ..settings import Settings
from ..store import jobs
from ..store.engine import Store

log = logging.getLogger(__name__)

#: Number of jobs at the front of the queue whose corpora are tokenised.
AHEAD: Final = 10
#: Number of corpora remembered as done. If a file changes later, the job tokenises it.
REMEMBERED: Final = 1000
#: Fields of a spec's `data` on which the tokens and their unigram loss depend.
_TEXT: Final = ("source", "files", "field", "tokenizer", "documents", "validation")


class WarmCorpora:
    """The corpora that one dispatcher has prepared."""

    def __init__(self, store: Store, settings: Settings, cluster: Cluster) -> None:
        self.store, self.settings, self.cluster = store, settings, cluster
        self._looked_at: Set[str] = frozenset()  # jobs at the front of the queue
        self._known: dict[str, None] = {}  # in the order of their preparation

    async def prepare_next(self) -> None:
        """Prepare the corpora of the next jobs that are not prepared yet. Returns when they are."""
        async with self.store.read() as tx:
            waiting = {row["id"] for row in await jobs.queued(tx, AHEAD, cluster=self.settings.cluster)}
            corpora = await jobs.corpora(tx, waiting - self._looked_at)
        self._looked_at = waiting
        for data in corpora:
            own = ":" in data.get("source", "")  # a source of the user's own, which has no corpus
            if not own and self._remember(data):
                try:
                    await self.cluster.tokenize(data)
                except ClusterError as error:
                    log.info("a corpus was not prepared: %s", error)

    def _remember(self, data: Mapping[str, Any]) -> bool:
        """Whether it is new."""
        key = json.dumps([data.get(name) for name in _TEXT])
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return True
