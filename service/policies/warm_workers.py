"""Decides how many idle Ray workers the embedded head keeps for the next gang.

At rest there are enough for two gangs of four ranks, so that a gang that follows another at once finds idle workers. While ranks use
all cores, there are enough for one more gang of the same size. Workers start a few at a time, one for every core, or for every other
one beside ranks: a gang that starts meanwhile needs the cores. `SHARDYARD_WARM_WORKERS` is the maximum number that idle: each takes
about 0.6% of a core (Ray checks for signals a hundred times a second) and 62 MB of its own.
"""

import os
from dataclasses import dataclass
from typing import Final

CORES: Final = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Workers:
    """Ray's workers on the head's node, by kind."""

    idle: int
    starting: int
    ranks: int


@dataclass(frozen=True)
class Shortage:
    """How many workers are missing, without those that start, and how many of them to request now."""

    missing: int
    ask: int


def shortage_of(workers: Workers, slots: int, most: int, cores: int = CORES) -> Shortage:
    """The missing workers. `slots`: ranks that the node has room for. `most`: workers that may idle."""
    wanted = workers.ranks + 1 if workers.ranks >= cores else 2 * (slots + 1)
    missing = max(0, min(wanted, most) - workers.idle)
    at_once = max(1, cores // 2) if workers.ranks else cores
    return Shortage(missing, max(0, min(missing, at_once) - workers.starting))
