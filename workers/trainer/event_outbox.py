"""Buffers a rank's events. A step's event is emitted only after that step's snapshot is whole.

So the state of a reported step is in the memory of every rank, and is not lost when a rank dies. Events keep their order. Those of the
last seconds are kept, because an event that has not left the rank's node yet is lost with its actor.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

EmitEvent = Callable[[str, dict[str, Any]], None]

#: Seconds for which a rank keeps its events (they reach the supervisor within one), and the maximum number of them.
RECENT_S: Final = 20.0
MAX_RECENT: Final = 500


class EventOutbox:
    """Emits through `emit`, at once or after `flush`. Any thread may call it."""

    def __init__(self, emit: EmitEvent) -> None:
        self._emit = emit
        self._events: deque[tuple[float, str, dict[str, Any]]] = deque(maxlen=MAX_RECENT)
        self._buffer: list[tuple[str, dict[str, Any]]] | None = None
        self._lock = threading.Lock()

    def emit(self, kind: str, data: dict[str, Any]) -> None:
        with self._lock:
            self._events.append((time.monotonic(), kind, data))
            if self._buffer is None:
                self._emit(kind, data)
            else:
                self._buffer.append((kind, data))

    def buffer(self) -> None:
        """Buffer events until `flush`."""
        with self._lock:
            self._buffer = self._buffer or []

    def flush(self) -> None:
        """Emit the buffered events, and from now on each at once."""
        with self._lock:
            kept, self._buffer = self._buffer or [], None
            for kind, data in kept:
                self._emit(kind, data)

    def recent(self) -> list[tuple[str, dict[str, Any]]]:
        """The events of the last seconds, including buffered ones: the snapshot for which these wait includes them."""
        since = time.monotonic() - RECENT_S
        with self._lock:
            return [(kind, data) for at, kind, data in self._events if at >= since]

    def replay(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Emit the events that a snapshot holds. The supervisor drops those that it has."""
        for kind, data in events:
            self.emit(kind, data | {"again": True})
