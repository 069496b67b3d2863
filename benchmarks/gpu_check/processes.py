"""Runs sections in processes of their own, so that a crash, a broken CUDA context or a hang costs one section.

A process appends a line of JSON to a file for each thing that it knows: the machine, a section's begin, its lines, its end. What was
written before a crash counts. On a CPU one process runs all sections, and the rest run in another one if it dies.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .report import Line, Machine, failed, line_of, skipped

SCRIPT = Path(__file__).parents[1] / "gpu.py"
#: Exit status of a process that has no CUDA device.
NO_DEVICE = 4
#: How torch's allocator grows, unless the environment says so.
ALLOCATOR = "expandable_segments:True"
#: Seconds that a process may take beyond the time limit, at which it begins nothing more.
GRACE_S = 60.0


class NoDevice(Exception):
    """There is no CUDA device here."""


@dataclass(frozen=True)
class Orders:
    """What a process runs: sections at sizes, below a folder, in `seconds`."""

    device: str
    sizes: str
    sections: Sequence[str]
    folder: str
    out: str
    seconds: float

    def line(self) -> str:
        return json.dumps(asdict(self))


def run_sections(
    device: str, sizes: str, sections: Sequence[str], folder: Path, seconds: float, show: Callable[[Line], None]
) -> tuple[Machine | None, list[Line]]:
    """The machine and all lines, which `show` gets as soon as their process has ended. Raises `NoDevice`."""
    deadline, left, machine, lines = time.monotonic() + seconds, list(sections), None, list[Line]()
    while left:
        several = left if device == "cpu" else left[:1]
        out = folder / f"{len(lines)}-{several[0]}.jsonl"
        orders = Orders(device, sizes, several, str(folder), str(out), max(0.0, deadline - time.monotonic()))
        if orders.seconds == 0.0:
            found = [_in(left[0], skipped("all checks", "the time limit is reached (--seconds)"))]
            left = left[1:]
        else:
            known, found, left = _run(orders, left)
            machine = machine or known
        for line in found:
            show(line)
        lines += found
    return machine, lines


def _run(orders: Orders, left: Sequence[str]) -> tuple[Machine | None, list[Line], list[str]]:
    """The machine, the lines of one process, and the sections that are left."""
    status = _process(orders)
    if status == NO_DEVICE:
        raise NoDevice
    entries = [json.loads(text) for text in Path(orders.out).read_text().splitlines()]
    lines = [line_of(entry["line"]) for entry in entries if "line" in entry]
    ended = {entry["end"] for entry in entries if "end" in entry}
    machine = next((Machine(**entry["machine"]) for entry in entries if "machine" in entry), None)
    unfinished = [section for section in orders.sections if section not in ended]
    if unfinished:  # the first of them broke the process; the others have not begun
        lines.append(_in(unfinished[0], failed("its process", f"{_death(status)}; its output is above")))
        ended.add(unfinished[0])
    return machine, lines, [section for section in left if section not in ended]


def _process(orders: Orders) -> int | None:
    """Run the process; returns its exit status, None if it took too long and was killed with all that it started."""
    Path(orders.out).touch()
    command = [sys.executable, str(SCRIPT), "--orders", orders.line()]
    env = {"PYTORCH_ALLOC_CONF": ALLOCATOR} | os.environ  # as trainers have it (`workers/rank/host.py`)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env=env) as process:
        try:
            return process.wait(orders.seconds + GRACE_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _death(status: int | None) -> str:
    if status is None:
        return "it did not end in time and was killed"
    return f"it died of {signal.Signals(-status).name}" if status < 0 else f"it exited with {status}"


def _in(section: str, line: Line) -> Line:
    return Line(**{**vars(line), "section": section})


def append(out: Path, entry: Mapping[str, Any]) -> None:
    """Add an entry for the parent."""
    with out.open("a") as file:
        file.write(json.dumps(entry) + "\n")
