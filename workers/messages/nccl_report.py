"""What NCCL's RAS subsystem reports of a job: launch counts that differ, and ranks that it misses. Plain data of a rank's actor.

RAS knows a rank by its communicator, and a process by its host's address and its process id. The supervisor knows whose they are.
"""

from dataclasses import dataclass
from typing import Literal

#: `dead`: RAS has not reached the process for a minute. `absent`: the process answers, and has left the communicator, or not joined it yet.
Missing = Literal["unresponsive", "dead", "absent"]


@dataclass(frozen=True, order=True)
class NcclRank:
    """A rank of a communicator, with its process. `pid` -1: RAS does not know the process."""

    rank: int  # in the communicator
    host: str = ""
    pid: int = -1


@dataclass(frozen=True)
class LaunchCount:
    """Ranks of a communicator that have launched `count` collectives of one kind. RAS's text does not list all of them."""

    count: int
    ranks: int
    listed: tuple[NcclRank, ...] = ()


@dataclass(frozen=True)
class UnequalLaunches:
    """The ranks of a communicator have not launched equally many collectives of this kind. The fewest come first."""

    communicator: str
    op: str
    counts: tuple[LaunchCount, ...]


@dataclass(frozen=True)
class MissingRank:
    """A rank of which RAS has no counts."""

    communicator: str
    who: NcclRank
    how: Missing


@dataclass(frozen=True)
class RasReport:
    """The answer of one RAS thread, which is about all processes of its job."""

    version: str = ""  # of NCCL
    communicators: int = 0  # 0: unknown
    unequal: tuple[UnequalLaunches, ...] = ()
    missing: tuple[MissingRank, ...] = ()
