"""A secret's value, on its way from the dispatcher to the processes of a rank.

It is in the memory of these processes only: specs, events, the journal and Ray's records of actors never have it. Imports no torch.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

#: Minimum number of characters. Shorter text could not be masked in logs without hiding other words.
SHORTEST: Final = 8


@dataclass(frozen=True)
class Secret:
    """One secret, and how processes find it: in the variable, or in a file whose path the variable has."""

    variable: str
    value: str = field(repr=False)
    file: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)
