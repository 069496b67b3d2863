"""What a rank's flight recorder has of one process group: plain data between the trainer, its actor and the supervisor."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from . import json_codec


@dataclass(frozen=True)
class PendingMessage:
    """A send or a receive that is not done. `peer`: the other rank, numbered in the world."""

    kind: Literal["send", "recv"]
    peer: int
    seq: int = 0  # number of the point-to-point operation on this rank; ranks of a group count differently
    since_s: float = 0.0


@dataclass(frozen=True)
class GroupRecord:
    """The collectives and messages of one group. Names and numbers of collectives are the same on all ranks of a group."""

    group: str
    ranks: tuple[int, ...]  # in the world
    entered: int = 0  # number of the newest collective that the host has entered
    op: str = ""  # the oldest collective that is not done; empty: none
    seq: int = 0
    size: str = ""  # elements and type of its input, if all ranks of a group must agree on it
    started: bool = False  # whether the device has begun it; known only if torch records the begin of collectives
    since_s: float = 0.0
    recent: tuple[tuple[int, str, str], ...] = ()  # number, name and size of some collectives before it, and of it
    messages: tuple[PendingMessage, ...] = ()
    name: str = ""  # torch's name of the group, the same on its ranks; several groups may have the same axis and ranks
    nccl: bool = False  # the host enqueues collectives, and the device runs them later

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the fields that have their default."""
        data: dict[str, Any] = json.loads(json_codec.dumps(self))
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for unknown or missing fields, or values of another type."""
        record: Self = json_codec.read(cls, data)
        return record
