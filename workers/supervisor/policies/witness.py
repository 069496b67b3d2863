"""NCCL's RAS subsystem as a second witness of a hang, beside torch's flight recorders. Decisions only.

What RAS reports may confirm a verdict. It never takes back a name, and never makes a hung gang healthy: it counts launches, and so
reports a hang in which all ranks have launched the same collectives as healthy (NVIDIA/nccl#1730). Only where the flight recorders of
NCCL are missing, and nothing else names a rank, may it name one:

- the only rank that RAS misses, if that rank does not answer its examination either;
- else the only rank that lags: others have launched what it has not, and it is ahead nowhere. Its host does not wait for its device, and
  that of a rank ahead of it does. Without that, hosts that fill the queues of their devices may have come to different places.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...messages.nccl_report import LaunchCount, Missing, MissingRank, NcclRank, RasReport, UnequalLaunches
from ...messages.rank_set import format_ranks
from .diagnosis import Verdict, condition
from .examination import Examination

#: Maximum number of lines in an incident.
MOST_LINES: Final = 16
HOW: Final[Mapping[Missing, str]] = {
    "dead": "is considered dead",
    "unresponsive": "does not answer",
    "absent": "has left a communicator, or not joined it",
}


@dataclass(frozen=True)
class Line:
    """A fact, in words, and the ranks that it points at."""

    text: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Witness:
    """What RAS reports about the ranks of a gang."""

    lines: tuple[Line, ...] = ()
    missing: tuple[int, ...] = ()
    lagging: tuple[int, ...] = ()  # ranks that have launched less than others somewhere, and nowhere more
    ahead: tuple[int, ...] = ()  # ranks that have launched more than others
    complete: bool = True  # whether the report lists all ranks that have launched least

    @property
    def suspects(self) -> tuple[int, ...]:
        """A rank that RAS misses has no counts, and those that wait for it lag elsewhere."""
        return self.missing or self.lagging

    @property
    def evidence(self) -> list[str]:
        """What an incident keeps."""
        return [line.text for line in self.lines[:MOST_LINES]]


def witness_of(report: RasReport | None, found: Sequence[Examination]) -> Witness:
    """The report in ranks of the gang. What it says of other processes is left out."""
    if report is None:
        return Witness()
    ranks = {(host, one.pid): one.rank for one in found if one.pid is not None for host in one.hosts}
    unequal = [one for one in report.unequal if _known(ranks, *(who for count in one.counts for who in count.listed))]
    behind = {rank for one in unequal for rank in _known(ranks, *one.counts[0].listed)}
    ahead = {rank for one in unequal for count in one.counts[1:] for rank in _known(ranks, *count.listed)}
    absent_first = sorted(report.missing, key=lambda one: one.how != "absent")
    gone = {rank: one for one in absent_first for rank in _known(ranks, one.who)}
    return Witness(
        lines=tuple(_lines(report, unequal, gone, ranks)),
        missing=tuple(sorted(rank for rank, one in gone.items() if one.how != "absent")),
        lagging=tuple(sorted(behind - ahead)),
        ahead=tuple(sorted(ahead)),
        complete=all(len(_known(ranks, *one.counts[0].listed)) == one.counts[0].ranks for one in unequal),
    )


def join(verdict: Verdict, found: Sequence[Examination], witness: Witness) -> Verdict:
    """The verdict with what the witness adds to it."""
    recorded = any(one.has_nccl_record for one in found)
    named = None if recorded or verdict.rank is not None else _named(found, witness)
    if named is not None:
        why = next(line.text for line in witness.lines if named.rank in line.ranks)
        return Verdict(named.rank, f"{condition(named)}; {why}", verdict.waiting)
    suspects = witness.suspects
    if recorded and verdict.rank not in suspects:
        suspects = witness.missing  # how far a host is ahead is no evidence beside a recorder
    return Verdict(verdict.rank, verdict.message + _remark(verdict.rank, suspects), verdict.waiting)


def _named(found: Sequence[Examination], witness: Witness) -> Examination | None:
    """The rank that the witness alone may name."""
    ranks = {one.rank: one for one in found}
    if len(witness.suspects) != 1:
        return None
    suspect = ranks[witness.suspects[0]]
    if witness.missing:
        return None if suspect.answered else suspect
    waited_for = any(ranks[rank].in_device_call for rank in witness.ahead)
    return suspect if witness.complete and waited_for and not suspect.in_device_call else None


def _remark(named: int | None, suspects: Sequence[int]) -> str:
    if not suspects:
        return ""
    if [named] == list(suspects):
        return "; NCCL's RAS points at it, too"
    return f"; NCCL's RAS points at {format_ranks(suspects)}"


def _known(ranks: Mapping[tuple[str, int], int], *who: NcclRank) -> list[int]:
    return sorted({ranks[one.host, one.pid] for one in who if (one.host, one.pid) in ranks})


def _lines(
    report: RasReport,
    unequal: Sequence[UnequalLaunches],
    gone: Mapping[int, MissingRank],
    ranks: Mapping[tuple[str, int], int],
) -> Iterator[Line]:
    for rank, one in sorted(gone.items()):
        yield Line(f"NCCL's RAS: rank {rank} {HOW[one.how]}", (rank,))
    for launches in unequal:
        counts = ", ".join(_count(count, ranks) for count in launches.counts)
        text = f"NCCL's RAS: {launches.op} of communicator {launches.communicator}: {counts}"
        yield Line(text, tuple(_known(ranks, *launches.counts[0].listed)))
    if report.communicators and not (report.unequal or report.missing):
        yield Line(f"NCCL's RAS: all ranks of its {report.communicators} communicators have launched equally much")


def _count(count: LaunchCount, ranks: Mapping[tuple[str, int], int]) -> str:
    known = _known(ranks, *count.listed)
    others = count.ranks - len(known)
    who = [format_ranks(known)] if known else []
    more = [f"{others} {'others' if known else 'ranks'}"] if others else []
    return f"{count.count} launched by {' and '.join(who + more)}"
