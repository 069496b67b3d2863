"""The order of a profile that a trainer records itself, received and not begun. Imports no torch: the control thread sets it."""

from dataclasses import dataclass
from typing import Any, Self

from ..messages.profile_request import Kind


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

    def order(self, wanted: RecordingOrder) -> None:
        self._ordered = wanted

    def take(self) -> RecordingOrder | None:
        """The order, once."""
        wanted, self._ordered = self._ordered, None
        return wanted
