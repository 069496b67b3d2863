"""A request for an injected fault: plain data, sent from the API to the rank or supervisor that applies it."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

from .json_codec import read

Kind = Literal["kill-rank", "kill-actor", "hang-rank", "slow-rank", "kill-supervisor", "corrupt-checkpoint"]

#: Kinds that apply to one rank, which must be named.
OF_A_RANK: Final = frozenset({"kill-rank", "kill-actor", "hang-rank", "slow-rank"})


@dataclass(frozen=True)
class Fault:
    """An injected fault. Requests with the same `id` inject it once. `delay_ms` (per step) and `duration_s` belong to `slow-rank`."""

    id: str
    kind: Kind
    rank: int | None = None
    delay_ms: float | None = None
    duration_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError for unknown or missing fields, other kinds."""
        request: Self = read(cls, data)
        return request
