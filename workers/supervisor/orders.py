"""The order queue of faults and of traces: each order is executed once and reported once, though it may arrive twice.

Rules that it keeps: an order is in the journal before its arrival is confirmed, and before any rank receives it. That it was
reported is in the journal with the event that reports it. A restarted supervisor executes what is pending.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class OrderQueue(Generic[T]):
    """Orders by id. `settled()` returns when the journal has the present state."""

    def __init__(self, settled: Callable[[], Awaitable[None]]) -> None:
        self.pending: dict[str, T] = {}  # oldest first
        self.reported: set[str] = set()
        self.settled = settled

    def resume(self, pending: Iterable[tuple[str, T]], reported: Iterable[str]) -> None:
        """Continue from a predecessor's state."""
        self.pending, self.reported = dict(pending), set(reported)

    async def add(self, name: str, order: T) -> None:
        """Add an order; returns when the journal has it. No effect if it is pending, or was reported."""
        if name not in self.reported:
            self.pending.setdefault(name, order)
            await self.settled()

    def report(self, name: str) -> T:
        """Remove a completed order. The caller emits its event before the next await."""
        self.reported.add(name)
        return self.pending.pop(name)
