"""The queue of one kind of orders: each order is executed once and reported once, though it may arrive twice.

Rules that it keeps: an order is in the journal before its arrival is confirmed, and before any rank receives it. That it was
reported is in the journal with the event that reports it. A restarted supervisor executes what is pending.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Reported orders whose ids are kept. Each write of the journal has them all. An order may arrive again until the dispatcher has stored
#: its event, and of most kinds few are open at a time; of commands one for each rank.
MOST_REPORTED: Final = 4096


class OrderQueue(Generic[T]):
    """Orders by id. `settled()` returns when the journal has the present state."""

    def __init__(self, settled: Callable[[], Awaitable[None]]) -> None:
        self.pending: dict[str, T] = {}  # oldest first
        self.reported: dict[str, None] = {}  # ids, those that were reported first at the front
        self.settled = settled

    def resume(self, pending: Iterable[tuple[str, T]], reported: Iterable[str]) -> None:
        """Continue from a predecessor's state."""
        self.pending, self.reported = dict(pending), dict.fromkeys(reported)

    async def add(self, name: str, order: T) -> None:
        """Add an order; returns when the journal has it. No effect if it is pending, or was reported."""
        if name not in self.reported:
            self.pending.setdefault(name, order)
            await self.settled()

    def report(self, name: str) -> T:
        """Remove a completed order. The caller emits its event before the next await."""
        self.reported[name] = None
        for old in list(self.reported)[:-MOST_REPORTED]:
            del self.reported[old]
        return self.pending.pop(name)
