"""How often a launcher, such as torchrun, has started a program's ranks again. Needs only the standard library: programs use it."""

from collections.abc import Mapping
from typing import Final

#: Variables of torchrun: how often it has started its ranks again, which each of several counts for itself, and how many there are.
#: Where the job starts each rank itself they are constant.
RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"
LAUNCHERS: Final = "GROUP_WORLD_SIZE"


def launcher_restarts(environment: Mapping[str, str]) -> int:
    """How often the ranks have been started again before this process. 0 where several launchers count each for itself."""
    text = environment.get(RESTARTS, "") if environment.get(LAUNCHERS) == "1" else ""
    return int(text) if text.isdecimal() else 0
