"""From small runs of a layout to a large one: what it holds and sends grows linearly with the blocks of a stage, and linearly with the
micro-batches.

Memory at one line of code is linear; its maximum over all lines is not. So each line's readings are extrapolated by themselves, the first
and the last one of a step apart (between them memory rises or falls evenly), and the largest result is the peak.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from .memory_meter import Reading, Site, Use

#: A run's blocks per stage (None: as the model has them) and micro-batches.
Size = tuple[int | None, int]
Which = Literal["first", "last", "most"]
WHICH: Final[tuple[Which, ...]] = ("first", "last", "most")


@dataclass(frozen=True)
class Grid:
    """The runs: every number of `blocks` with every number of `microbatches`, at most two of each; and the size that is wanted."""

    blocks: tuple[int | None, ...]
    microbatches: tuple[int, ...]
    wanted: tuple[float, int]

    @property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(product(self.blocks, self.microbatches))

    @property
    def whole(self) -> bool:
        """Whether the one run is the wanted one."""
        return len(self.sizes) == 1

    def value(self, of: Callable[[Size], float]) -> float:
        """`of` at the wanted size, from its values at the runs' sizes."""
        blocks, microbatches = self.wanted
        at = [
            _line(self.microbatches, [of((number, m)) for m in self.microbatches], microbatches)
            for number in self.blocks
        ]
        return _line([number or 0 for number in self.blocks], at, blocks)


@dataclass(frozen=True)
class Peak:
    """The most memory at one site, and which of its readings that is."""

    site: Site
    which: Which
    bytes: int


def highest(grid: Grid, runs: Mapping[Size, Mapping[Site, Use]], sites: Iterable[Site] | None = None) -> Peak:
    """The peak over `sites` (default: all) that all runs have in common."""
    common = [site for site in (sites or runs[grid.sizes[0]]) if all(site in run for run in runs.values())]
    peaks = (Peak(site, which, _bytes(grid, runs, site, which)) for site in common for which in WHICH)
    return max(peaks, key=lambda peak: peak.bytes)


def _bytes(grid: Grid, runs: Mapping[Size, Mapping[Site, Use]], site: Site, which: Which) -> int:
    return round(grid.value(lambda size: reading(runs[size][site], which).bytes))


def reading(use: Use, which: Which) -> Reading:
    found: Reading = getattr(use, which)
    return found


def _line(places: Sequence[int], values: Sequence[float], wanted: float) -> float:
    if len(places) == 1:
        return values[0]
    (low, high), (first, last) = places, values
    return first + (last - first) * (wanted - low) / (high - low)
