"""Ranks that the supervisor has given up while the others train on: the control thread adds them, a strategy learns of each once.

A process that ends closes its connections, and its peers notice. One whose machine is gone does not.
"""

import threading
from collections.abc import Callable


class LostRanks:
    """`listen` and `add` may come in either order, from different threads."""

    def __init__(self) -> None:
        self._ranks: list[int] = []
        self._listener: Callable[[int], None] | None = None
        self._lock = threading.Lock()

    def add(self, rank: int) -> None:
        with self._lock:
            self._ranks.append(rank)
            if self._listener is not None:
                self._listener(rank)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with each rank, also with those that were added before. It must not wait."""
        with self._lock:
            self._listener = listener
            for rank in self._ranks:
                listener(rank)
