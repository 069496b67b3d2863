"""The order of a profile that a trainer records itself, received and not begun. Imports no torch: the control thread sets it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from ..messages.profile_request import Kind

#: Kind of the message to the rank's actor that a recording was written, or why it was not.
PROFILED: Final = "profiled"


@dataclass(frozen=True)
class RecordingOrder:
    """Record whole steps for about `seconds`, and write them to the file `path`, whose folder exists."""

    id: str
    kind: Kind
    seconds: float
    path: str

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)


class PendingProfile:
    """The control thread orders a recording; the training thread takes it before a step. A newer order replaces one that was not taken."""

    def __init__(self) -> None:
        self._ordered: RecordingOrder | None = None
        self._deliver: Callable[[RecordingOrder], None] | None = None

    def deliver_to(self, deliver: Callable[[RecordingOrder], None]) -> None:
        """Have orders carried out by this function, which returns at once; also the one that waits."""
        self._deliver = deliver
        if (wanted := self.take()) is not None:
            deliver(wanted)

    def order(self, wanted: RecordingOrder) -> None:
        self._ordered = wanted
        if self._deliver is not None and (mine := self.take()) is not None:
            self._deliver(mine)

    def take(self) -> RecordingOrder | None:
        """The order, once."""
        wanted, self._ordered = self._ordered, None
        return wanted
