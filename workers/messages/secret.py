"""A secret's value, on its way from the dispatcher to the processes of a rank.

It is in the memory of these processes only: specs, events, the journal and Ray's records of actors never have it. Imports no torch.
"""

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

#: Minimum number of characters. Shorter text could not be masked in logs without hiding other words.
SHORTEST: Final = 8
_NAME: Final = re.compile(r"(^|_)(TOKEN|SECRETS?|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)(_|$)")


def names_secret(variable: str) -> bool:
    """Whether the name of a variable says that its value is secret."""
    return _NAME.search(variable.upper()) is not None


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
