"""What a rank tells, in order and not too early: a step whose snapshot is being taken is told once that is whole.

So whatever the gang has told is in every rank's memory: a rank's death takes no told step back. What is told meanwhile follows
in its turn. What was told in the last seconds is remembered, because what has not left the rank's node yet dies with its actor.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

Tell = Callable[[str, dict[str, Any]], None]

#: How long, and how much at most, a rank remembers what it told: events take a second on their way to the supervisor.
RECENT_S: Final = 20.0
MOST_RECENT: Final = 500


class Recent:
    """Tells through `tell`, at once or after `release`; any thread may call it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._events: deque[tuple[float, str, dict[str, Any]]] = deque(maxlen=MOST_RECENT)
        self._withheld: list[tuple[str, dict[str, Any]]] | None = None
        self._lock = threading.Lock()

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        with self._lock:
            self._events.append((time.monotonic(), kind, data))
            if self._withheld is None:
                self._tell(kind, data)
            else:
                self._withheld.append((kind, data))

    def withhold(self) -> None:
        """From now on nothing is told until `release`."""
        with self._lock:
            self._withheld = self._withheld or []

    def release(self) -> None:
        """Tell what was withheld."""
        with self._lock:
            withheld, self._withheld = self._withheld or [], None
            for kind, data in withheld:
                self._tell(kind, data)

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        """What is in the memory of the last seconds, also what is withheld: it is for the snapshot that holds it up."""
        since = time.monotonic() - RECENT_S
        with self._lock:
            return [(kind, data) for at, kind, data in self._events if at >= since]

    def tell_again(self, told: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Tell what a snapshot remembers; the gang leaves out what it has heard."""
        for kind, data in told:
            self.tell(kind, data | {"again": True})
