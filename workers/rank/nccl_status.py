"""Reads a status of NCCL's RAS subsystem, as JSON (NCCL 2.28.7 and later) or as text (2.24 and later). Functions of text only.

The JSON has each rank's counts. The text has them where ranks differ, and lists the smaller groups of ranks. Both are documented at
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html and written by `src/ras/client_support.cc` of
NVIDIA/nccl (`rasDumpCommsToJSON`, `rasClientRunComms`).
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..messages.nccl_report import LaunchCount, Missing, MissingRank, NcclRank, RasReport, UnequalLaunches

#: Kinds of collectives that all ranks of a communicator launch. The counts of messages differ between healthy ranks.
COLLECTIVES: Final = (
    "Broadcast",
    "Reduce",
    "AllGather",
    "ReduceScatter",
    "AllReduce",
    "AlltoAll",
    "Gather",
    "Scatter",
)
#: Text of a version before 2.26, which counted all kinds together.
ANY: Final = "collective"


class NotAStatus(Exception):
    """An answer that is no status of RAS."""


def read_json(text: str, hosts: Collection[str], pid: int) -> RasReport | None:
    """None for the status of a job without process `pid` of this node, whose addresses are `hosts`. Raises NotAStatus."""
    try:
        data = json.loads(text)
        communicators = [_Communicator.of(one) for one in data["communicators"]]
        version = str(data.get("nccl_version", ""))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise NotAStatus(f"{type(error).__name__}: {error}") from error
    members = (who for one in communicators for who in (*one.ranks, *(rank.who for rank in one.missing)))
    if not any(who.pid == pid and who.host in hosts for who in members):
        return None
    unequal = tuple(launches for one in communicators for launches in one.unequal())
    missing = tuple(rank for one in communicators for rank in one.missing)
    return RasReport(version, len(communicators), unequal, missing)


@dataclass(frozen=True)
class _Communicator:
    name: str
    ranks: Mapping[NcclRank, Mapping[str, int]]  # → kind of collective → how many it has launched
    missing: tuple[MissingRank, ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "_Communicator":
        name = str(data["hash"])
        ranks = {_who(one): _counts(one["collective_counts"]) for one in data["ranks"]}
        return cls(name, ranks, tuple(MissingRank(name, _who(one), _how(one)) for one in data["missing_ranks"]))

    def unequal(self) -> Iterator[UnequalLaunches]:
        for op in COLLECTIVES:
            by_count: dict[int, list[NcclRank]] = defaultdict(list)
            for who, counts in self.ranks.items():
                if op in counts:
                    by_count[counts[op]].append(who)
            if len(by_count) > 1:
                found = (LaunchCount(count, len(who), tuple(who)) for count, who in sorted(by_count.items()))
                yield UnequalLaunches(self.name, op, tuple(found))


def _who(one: Mapping[str, Any]) -> NcclRank:
    return NcclRank(int(one["rank"]), str(one["host"]), int(one["pid"]))


def _counts(counts: Mapping[str, Any]) -> dict[str, int]:
    return {str(op): int(count) for op, count in counts.items()}


def _how(one: Mapping[str, Any]) -> Missing:
    status = one["status"]
    if status["considered_dead"]:
        return "dead"
    return "unresponsive" if status["unresponsive"] else "absent"


#: Lines of the text. They differ little between versions: 2.24 lists no processes of missing ranks.
_VERSION: Final = re.compile(r"NCCL version (\S+)")
_COMMUNICATOR: Final = re.compile(r"#\d+-\d+ \((\w+)\) (INCOMPLETE|MISMATCH|ERROR)")
_OP: Final = re.compile(r"  Communicator ranks have different (\w+) operation counts")
_SEVERAL: Final = re.compile(r"  (\d+) ranks have (?:launched up to operation (\d+)|not launched any operations)")
_ONE: Final = re.compile(r"  Rank (\d+) has (?:launched up to operation (\d+)|not launched any operations) -- (.*)")
_LISTED: Final = re.compile(r"  Rank (\d+) -- (.*)")
_PROCESS: Final = re.compile(r"managed by process (\d+) on node (\S+)")
_MISSED: Final = re.compile(r"  Process (\d+) on node (\S+) managing GPU")


def read_text(text: str) -> RasReport | None:
    """None where nothing is wrong: the text does not say then whose job it is about. Raises NotAStatus."""
    version = _VERSION.match(text)
    if version is None:
        raise NotAStatus(f"it begins with {text[:40]!r}")
    reader = _TextReader()
    for line in text.splitlines():
        reader.read(line)
    report = RasReport(version[1], 0, tuple(reader.unequal()), tuple(reader.missing))
    return report if report.unequal or report.missing else None


@dataclass
class _TextReader:
    """Reads line by line. A line of a rank or a process belongs to the last heading."""

    heading: str = ""  # `INCOMPLETE` or `DEAD`, or what is wrong with the communicator
    communicator: str = ""
    op: str = ""  # empty: the ranks below are not grouped by counts
    groups: dict[tuple[str, str], list[tuple[int, int, list[NcclRank]]]] = field(default_factory=dict)
    missing: list[MissingRank] = field(default_factory=list)

    def read(self, line: str) -> None:
        if line in ("INCOMPLETE", "DEAD", "TIMEOUT"):
            self.heading, self.communicator, self.op = line, "", ""
        elif found := _COMMUNICATOR.match(line):
            self.communicator, self.heading, self.op = found[1], found[2], ""
        elif line.startswith("  Communicator ranks have"):
            named = _OP.match(line)
            self.op = named[1] if named and named[1] in (*COLLECTIVES, ANY) else ""
        elif found := _MISSED.match(line):
            how: Missing = "dead" if self.heading == "DEAD" else "unresponsive"
            self.missing.append(MissingRank("", NcclRank(-1, found[2], int(found[1])), how))
        elif self.op:
            self._read_count(line)

    def _read_count(self, line: str) -> None:
        groups = self.groups.setdefault((self.communicator, self.op), [])
        if found := _SEVERAL.match(line):
            groups.append((int(found[2] or 0), int(found[1]), []))
        elif found := _ONE.match(line):
            groups.append((int(found[2] or 0), 1, [_listed(int(found[1]), found[3])]))
        elif (found := _LISTED.match(line)) and groups:
            groups[-1][2].append(_listed(int(found[1]), found[2]))

    def unequal(self) -> Iterator[UnequalLaunches]:
        for (communicator, op), groups in self.groups.items():
            counts = [LaunchCount(count, ranks, tuple(listed)) for count, ranks, listed in groups]
            if len(counts) > 1:
                yield UnequalLaunches(communicator, op, tuple(sorted(counts, key=lambda one: one.count)))


def _listed(rank: int, text: str) -> NcclRank:
    found = _PROCESS.search(text)
    return NcclRank(rank, found[2], int(found[1])) if found else NcclRank(rank)
