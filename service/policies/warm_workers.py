"""How many idle Ray workers the embedded head is to have for the next gang. Decisions only.

Rules that it keeps: at rest there are enough for two gangs of four ranks, so that one that follows another at once finds its own; while
ranks have all cores, for one more gang of as many. Workers start a few at a time, one for every core, or for every other one beside ranks:
a gang that is started meanwhile needs the cores. `SHARDYARD_WARM_WORKERS` is the most that idle: each takes about 0.6% of a
core (Ray looks for signals a hundred times a second) and 62 MB of its own.
"""

import os
from dataclasses import dataclass
from typing import Final

CORES: Final = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Workers:
    """Ray's workers on the head's node, by what they are."""

    idle: int
    starting: int
    ranks: int


@dataclass(frozen=True)
class Shortage:
    """How many workers are missing, those that start aside, and how many of them to ask for now."""

    missing: int
    ask: int


def shortage_of(workers: Workers, slots: int, most: int, cores: int = CORES) -> Shortage:
    """`slots`: ranks that the node has room for. `most`: workers that may idle."""
    wanted = workers.ranks + 1 if workers.ranks >= cores else 2 * (slots + 1)
    missing = max(0, min(wanted, most) - workers.idle)
    at_once = max(1, cores // 2) if workers.ranks else cores
    return Shortage(missing, max(0, min(missing, at_once) - workers.starting))
