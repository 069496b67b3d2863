"""What a check found, as values: lines with a bound and a verdict, as JSON and as a Markdown table. Imports nothing of torch.

The JSON is for programs: `version` changes with its fields. The table is made from the JSON alone.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

VERSION = 1

Verdict = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class Bound:
    """The limit that a value must keep."""

    kind: Literal["at most", "at least"]
    value: float

    def holds(self, value: float) -> bool:
        return value <= self.value if self.kind == "at most" else value >= self.value


@dataclass(frozen=True)
class Line:
    """One measurement. `reason`: why it was skipped or failed, else what belongs to the number."""

    name: str
    value: float | None
    unit: str
    bound: Bound | None
    verdict: Verdict
    reason: str = ""
    section: str = ""


@dataclass(frozen=True)
class Machine:
    """Where the check ran. None: not known there."""

    device: str
    torch: str
    python: str
    shardyard: str
    cores: int
    memory_bytes: int | None = None
    capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    nccl: str | None = None


@dataclass(frozen=True)
class Report:
    """A whole check. `began`: ISO 8601, in UTC."""

    began: str
    seconds: float
    machine: Machine
    lines: Sequence[Line] = field(default_factory=tuple)
    version: int = VERSION

    @property
    def good(self) -> bool:
        return all(line.verdict != "failed" for line in self.lines)


def measured(
    name: str,
    value: float,
    unit: str = "",
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    note: str = "",
) -> Line:
    """A number, ok if it keeps its bound; a number that is none fails."""
    bound = None if at_most is None else Bound("at most", at_most)
    bound = bound if at_least is None else Bound("at least", at_least)
    number = float(value)
    if not math.isfinite(number):
        return Line(name, None, unit, bound, "failed", f"the value is {number}")
    return Line(name, number, unit, bound, "ok" if bound is None or bound.holds(number) else "failed", note)


def ratio(name: str, ratios: Sequence[float], *, at_most: float | None = None, at_least: float | None = None) -> Line:
    """The median of ratios, each of two neighbouring blocks, with their spread."""
    ordered = sorted(ratios)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    note = f"{ordered[0]:.3f} to {ordered[-1]:.3f}, {len(ordered)} pairs"
    return measured(name, middle, "×", at_most=at_most, at_least=at_least, note=note)


def skipped(name: str, reason: str) -> Line:
    return Line(name, None, "", None, "skipped", reason)


def failed(name: str, reason: str) -> Line:
    return Line(name, None, "", None, "failed", reason)


def to_json(report: Report) -> str:
    """The report as a JSON document."""
    fields = asdict(report)
    ordered = {name: fields[name] for name in ("version", "began", "seconds", "machine", "lines")}
    return json.dumps(ordered, indent=1, ensure_ascii=False) + "\n"


def line_of(fields: Mapping[str, Any]) -> Line:
    """The line of its JSON."""
    bound = fields["bound"]
    return Line(**{**fields, "bound": None if bound is None else Bound(**bound)})


def of_json(text: str) -> Report:
    """The report of its JSON. Raises ValueError for another version."""
    fields = json.loads(text)
    if fields["version"] != VERSION:
        raise ValueError(f"version {fields['version']} is not {VERSION}")
    lines = tuple(line_of(line) for line in fields["lines"])
    return Report(fields["began"], fields["seconds"], Machine(**fields["machine"]), lines)


def markdown(report: Report) -> str:
    """The report as a heading, a line on the machine and one table."""
    counts = ", ".join(
        f"{number} {verdict}" for verdict in ("ok", "failed", "skipped") if (number := _count(report.lines, verdict))
    )
    rows = ["| section | measurement | value | bound | verdict | note |", "|---|---|---:|---|---|---|"]
    rows += [_row(line) for line in report.lines]
    head = f"# GPU check, {report.began}\n\n{_machine(report.machine)}\n\n{counts or 'no lines'}, {report.seconds:.0f} s.\n\n"
    return head + "\n".join(rows) + "\n"


def format_line(line: Line) -> str:
    """One line for a terminal."""
    word = {"ok": "ok", "failed": "FAIL", "skipped": "skip"}[line.verdict]
    parts = (number(line.value, line.unit), _bound(line), line.reason)
    return f"  {word:<4} {line.section + ': ' + line.name:<72} {'  '.join(part for part in parts if part)}"


def number(value: float | None, unit: str) -> str:
    """Four digits, or a whole number with its thousands."""
    if value is None:
        return ""
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.4g}"
    return f"{text} {unit}".strip()


def _row(line: Line) -> str:
    verdict = f"**{line.verdict}**" if line.verdict == "failed" else line.verdict
    cells = (line.section, line.name, number(line.value, line.unit), _bound(line), verdict, line.reason)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _bound(line: Line) -> str:
    return "" if line.bound is None else f"{line.bound.kind} {number(line.bound.value, '')}"


def _count(lines: Iterable[Line], verdict: Verdict) -> int:
    return sum(line.verdict == verdict for line in lines)


def _machine(machine: Machine) -> str:
    memory = None if machine.memory_bytes is None else f"{machine.memory_bytes / 2**30:.0f} GiB"
    facts = [machine.device, memory, f"{machine.cores} cores", f"torch {machine.torch}"]
    named = {"compute capability": machine.capability, "driver": machine.driver, "CUDA": machine.cuda}
    facts += [f"{name} {value}" for name, value in {**named, "NCCL": machine.nccl}.items() if value]
    return ", ".join(fact for fact in [*facts, f"Python {machine.python}", f"Shardyard {machine.shardyard}"] if fact)
