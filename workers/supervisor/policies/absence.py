"""Whether a gang trains on without a rank that it has lost. Decisions only: repair.py carries them out.

It may where the rank is a worker of parameter servers with a clock of its own: servers notice the end of its connections, and wait for
it no more. The rank returns at the next meeting of the others, which is a new generation. Rank 0 reports on the job, and servers hold
the state: their end ends the generation.

A rank that has not trained a step of this generation may be missing from groups that are still to be formed. So its end ends the
generation, too, and so does one for which no repair is left, or there are no snapshots, because it could not return.
"""

from dataclasses import replace
from typing import Final

from ...messages.gang_spec import GangSpec
from .failures import Failure

#: Causes that are of one rank alone. Its exceptions may be the echo of another rank's end.
TOLERATED: Final = frozenset({"rank_lost", "hang"})


def may_be_absent(failure: Failure, spec: GangSpec) -> bool:
    """Whether the others can train on without the rank that `failure` names."""
    return failure.cause in TOLERATED and failure.rank in spec.dispensable


def announced(failure: Failure, workers: int) -> Failure:
    """The failure of a rank without which `workers` others train on."""
    others = f"{workers} workers train" if workers > 1 else "1 worker trains"
    return replace(failure, message=f"{failure.message}; {others} on, and the rank returns at their next meeting")
