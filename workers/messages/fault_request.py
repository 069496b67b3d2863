"""A fault that somebody asked for: plain data, on its way from the API to whom it strikes."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

Kind = Literal["kill-rank", "kill-actor", "hang-rank", "slow-rank", "kill-supervisor", "corrupt-checkpoint"]

#: Kinds that strike one rank, which must be named.
OF_A_RANK: Final = frozenset({"kill-rank", "kill-actor", "hang-rank", "slow-rank"})


@dataclass(frozen=True)
class Fault:
    """`id` makes it one fault, however often its order comes. `delay_ms` and `duration_s` are of `slow-rank`: per step, and how long."""

    id: str
    kind: Kind
    rank: int | None = None
    delay_ms: float | None = None
    duration_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises TypeError for unknown or missing fields."""
        return cls(**data)
