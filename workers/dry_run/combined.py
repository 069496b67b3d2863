"""The report on a step, from what runs of a few sizes measured."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..spec import TrainSpec
from .extrapolation import Grid, Peak, Size, highest, reading
from .memory_meter import Site, Use
from .report import KINDS, Collectives, DryRun, HostSync, HostWait, Kind, Meeting, Message, PhasePeak


@dataclass(frozen=True)
class Measured:
    """One rank's step at one size; `messages`, `meetings` and `sites` are also of a validation batch after it. Plain data."""

    parameters: int
    state_bytes: int
    host_bytes: int
    sites: Mapping[Site, Use]
    syncs: Counter[tuple[str, HostWait]]
    validation_syncs: Counter[tuple[str, HostWait]]
    sent: Mapping[tuple[str, str], tuple[int, float]]  # (axis, collective) → calls, bytes
    messages: Sequence[Message]
    meetings: Mapping[str, Sequence[Meeting]]
    digests: Mapping[str, str]


def combined(train: TrainSpec, vocab: int, rank: int, grid: Grid, runs: Mapping[Size, Measured]) -> DryRun:
    """The report of `rank` at the wanted size."""

    def value(of: Callable[[Measured], float]) -> float:
        return grid.value(lambda size: of(runs[size]))

    def waits(of: Callable[[Measured], Counter[tuple[str, HostWait]]]) -> tuple[HostSync, ...]:
        return tuple(HostSync(*key, round(value(lambda run: of(run)[key]))) for key in sorted(of(largest)))  # noqa: B023

    largest = runs[grid.sizes[-1]]
    architecture = train.architecture(vocab)
    peaks = _peaks(grid, runs)
    peak = max(peaks, key=lambda one: one.bytes)
    of_the_step = [one for one in peaks if one.site.phase not in ("build", "validation")]
    return DryRun(
        rank=rank,
        world_size=train.layout.world_size,
        layout=str(train.layout),
        parameters=architecture.parameters if architecture else largest.parameters,
        state_bytes=round(value(lambda run: run.state_bytes)),
        peak_bytes=peak.bytes,
        peak_phase=peak.site.phase,
        host_bytes=round(value(lambda run: run.host_bytes)),
        by_kind=_by_kind(value, max(of_the_step, key=lambda one: one.bytes)),
        phases=tuple(PhasePeak(one.site.phase, one.bytes, one.site.operator, one.site.line) for one in peaks),
        host_syncs=waits(lambda run: run.syncs),
        validation_syncs=waits(lambda run: run.validation_syncs),
        collectives=tuple(
            Collectives(*key, round(value(lambda run: run.sent[key][0])), value(lambda run: run.sent[key][1]))  # noqa: B023
            for key in sorted(largest.sent)
        ),
        sequence=dict(largest.digests),
        messages=tuple(largest.messages),
        meetings={ranks: tuple(own) for ranks, own in largest.meetings.items()},
        precision=train.precision.compute,
        extrapolated_from=() if grid.whole else tuple((blocks or 0, m) for blocks, m in grid.sizes),
    )


def _peaks(grid: Grid, runs: Mapping[Size, Measured]) -> list[Peak]:
    """The highest reading of each phase."""
    sites = {size: run.sites for size, run in runs.items()}
    first = sites[grid.sizes[0]]
    phases = dict.fromkeys(site.phase for site in first)
    return [highest(grid, sites, [site for site in first if site.phase == phase]) for phase in phases]


def _by_kind(value: Callable[[Callable[[Measured], float]], float], peak: Peak) -> dict[Kind, int]:
    """Bytes by kind at a peak."""
    found = {
        kind: round(value(lambda run: reading(run.sites[peak.site], peak.which).by_kind[place]))  # noqa: B023
        for place, kind in enumerate(KINDS)
    }
    return {kind: held for kind, held in found.items() if held}
