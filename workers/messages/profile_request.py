"""A request for a profile of a running rank: plain data, sent from the API to the rank that takes it. Imports neither torch nor Ray."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

from .json_codec import read

#: `stacks`: where all threads are now. `cpu`: where the time goes, sampled. By the trainer or the program itself: `operators`,
#: torch's operators in whole steps, with their times and memory; `memory`, the allocations on a CUDA device.
Kind = Literal["stacks", "cpu", "operators", "memory"]
#: Those that a trainer or a program of the user's own records of itself.
RECORDED: Final[frozenset[Kind]] = frozenset({"operators", "memory"})
#: Maximum seconds of a profile that takes time.
MOST_SECONDS: Final = 120


@dataclass(frozen=True)
class Profile:
    """A profile of one rank. Requests with the same `id` take it once. `storage`: address of the folder of the job's files."""

    id: str
    kind: Kind
    rank: int
    seconds: int
    storage: str
    most_bytes: int

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= MOST_SECONDS:
            raise ValueError(f"a profile takes 1 to {MOST_SECONDS} seconds, not {self.seconds}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError for unknown or missing fields, other kinds, too many seconds."""
        request: Self = read(cls, data)
        return request
