"""Shows a job's progress as it happens: as lines for a log here, as a live view on a terminal in `live_view.py`."""

import time
from collections import deque
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape

from ....service.schemas.step import Step
from ...client import Event
from . import sanitize
from .screen import seconds


class Meter(Protocol):
    """Shows steps as they arrive, and notes between them."""

    def before(self, points: list[Step]) -> None:
        """Add the curve before the first shown step."""

    def step(self, data: dict[str, Any]) -> None: ...

    def see(self, event: Event) -> None:
        """Add any other event, for the live view; its text arrives as a note."""

    def note(self, text: str) -> None: ...


class Pace:
    """Loss, speed and time left, from the last steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._times: deque[float] = deque(maxlen=20)

    def text(self, data: dict[str, Any]) -> str:
        """`loss 3.2101 · 41,200 tokens/s · 32 s left`."""
        if data.get("step_s"):
            self._times.append(data["step_s"])
        parts = []
        if data.get("loss") is not None:
            parts.append(f"loss {data['loss']:.4f}")
        if data.get("tokens_per_s") is not None:
            parts.append(f"{data['tokens_per_s']:,.0f} tokens/s")
        left = self._left(data.get("step", 0))
        if left is not None:
            parts.append(f"{seconds(left)} left")
        return " · ".join(parts)

    def _left(self, step: int) -> float | None:
        if not self._times:
            return None
        return (self.steps - step) * sorted(self._times)[len(self._times) // 2]


class Lines:
    """One line at the first and last step and every few seconds between."""

    def __init__(self, console: Console, steps: int, every_s: float = 5.0) -> None:
        self._console = console
        self._pace = Pace(steps)
        self._every_s = every_s
        self._last = float("-inf")

    def before(self, points: list[Step]) -> None:
        """Ignored: a log has no curve."""

    def see(self, event: Event) -> None:
        """Ignored: the note has all of it."""

    def step(self, data: dict[str, Any]) -> None:
        text = self._pace.text(data)
        step = data.get("step", 0)
        now = time.monotonic()
        if now - self._last >= self._every_s or step >= self._pace.steps:
            self._last = now
            self._console.print(f"step {step}/{self._pace.steps} · {text}")

    def note(self, text: str) -> None:
        self._console.print(escape(sanitize.line(text)))
