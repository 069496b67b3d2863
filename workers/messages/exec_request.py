"""A command that a user runs beside a rank: plain data, sent from the API to the rank's actor. Imports neither torch nor Ray."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from .json_codec import read

#: Maximum seconds of a command.
MOST_SECONDS: Final = 3600
#: Maximum bytes of a command with its arguments.
MOST_BYTES: Final = 32 << 10
#: Streams of the rank's log: of a command's output, and of what gates print, which is none of it.
STREAM: Final = "exec"
GATE_STREAM: Final = "gate"
#: A command of ours, by its first word: a gate for streams to the rank (`rank/stream_gate.py`), with its name and its token's digest.
GATE: Final = "shardyard-streams"
#: Maximum seconds of a gate: a week. It ends by itself when no stream was open for a while.
MOST_GATE_SECONDS: Final = 7 * 86_400


@dataclass(frozen=True)
class Exec:
    """A command beside one rank. Requests with the same `id` run it once. It is killed after `seconds`."""

    id: str
    rank: int
    command: tuple[str, ...]
    seconds: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError for unknown or missing fields."""
        request: Self = read(cls, data | {"command": list(data.get("command", ()))})
        return request


@dataclass(frozen=True)
class ExecEnd:
    """How a command ended. `status`: its exit status, 128 and the signal that ended it; None if it did not run to an end.

    `last`: number of the rank's event with the last of its output. `at`: from an actor of an earlier version, whose events have the times
    of its node's clock, a moment after that event; else 0.
    """

    message: str
    status: int | None = None
    last: int = 0
    at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data)
