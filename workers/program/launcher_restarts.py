"""How often a launcher, such as torchrun, has started a program's ranks again. Needs only the standard library: programs use it."""

from collections.abc import Mapping
from typing import Final

#: Variables of torchrun: how often it has started its ranks again, which each of several counts for itself, how many there are, and the
#: id of the run. Where the job starts each rank itself they are the gang's.
RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"
LAUNCHERS: Final = "GROUP_WORLD_SIZE"
_RUN: Final = "TORCHELASTIC_RUN_ID"


def run_id(job: str, attempt: str) -> str:
    """The id of the run in the environment of a rank that the job itself starts. A launcher in its command sets its own."""
    return f"{job}-{attempt}"


def launcher_restarts(environment: Mapping[str, str]) -> int:
    """How often a launcher has started the ranks again before this process. 0 without one, and where several count each for itself."""
    if environment.get(_RUN) == run_id(environment.get("SHARDYARD_JOB", ""), environment.get("SHARDYARD_ATTEMPT", "")):
        return 0  # the count is of the gang's starts
    text = environment.get(RESTARTS, "") if environment.get(LAUNCHERS) == "1" else ""
    return int(text) if text.isdecimal() else 0
