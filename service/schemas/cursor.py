"""How far a reader of a job's events is."""

from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

from ..errors import InvalidCursor

#: A cursor as text, as a response holds it.
CursorText = Annotated[str, BeforeValidator(str)]


class Cursor(NamedTuple):
    """The last event, step and log position that a reader has seen. Text: `event.step.log`.

    For a reader of rank samples the text is `event.step.log.ranks`.
    """

    event: int = 0
    step: int = 0
    log: int = 0
    ranks: int = 0

    def __str__(self) -> str:
        return f"{self.event}.{self.step}.{self.log}" + (f".{self.ranks}" if self.ranks else "")

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Raises `InvalidCursor` for anything but three or four counting numbers."""
        parts = text.split(".")
        if len(parts) not in (3, 4) or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            remedy = "Use an id that the stream gave, or leave it out."
            raise InvalidCursor(f"{text[:80]!r} is not a cursor.", field="after", remedy=remedy)
        return cls(*(int(part) for part in parts))
