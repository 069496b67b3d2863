"""What runs beside the trainers of a gang: processor time per step and wake-ups per second of every process of the control plane, by kind.

    python benchmarks/gang_cost.py [--ranks 4] [--seconds 20] [--watch]

One job of the quickstart's model trains meanwhile; `--watch` has a page's stream open beside it. A wake-up is a voluntary change of
context in `/proc/PID/task/TID/status`: a thread that slept and was woken. Processor time is the kernel's (`schedstat`), so that both
numbers mean the same on a busy machine as on a quiet one.
"""

import argparse
import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from harness.control_plane import ControlPlane, running_control_plane, until  # noqa: E402
from launch import spec  # noqa: E402

from shardyard import Client  # noqa: E402

#: Steps before the first look: buffers, snapshots and probes have found their pace.
SETTLED = 60


@dataclass(frozen=True)
class Spent:
    """By one process until now."""

    seconds: float
    wakes: int


def kinds(plane: ControlPlane) -> dict[int, str]:
    """Every process of the control plane: pid → what it is."""
    record = psutil.Process(plane.process.pid) if plane.process else None
    assert record is not None
    found = {record.pid: "control plane"}
    for process in plane.processes():
        with contextlib.suppress(psutil.Error):
            found.setdefault(process.pid, _kind(process))
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("SHARDYARD_NODE", "").startswith(str(plane.data)):
                found[process.pid] = _kind(process)
    return found


def _kind(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    if (program := Path(line.split()[0]).name) in (
        "raylet",
        "gcs_server",
    ):  # the raylet's line has its workers' command, too
        return program
    if ".forkserver" in line:
        parent = process.parent()
        forked = parent is not None and ".forkserver" in " ".join(parent.cmdline())
        return "trainer" if forked else "fork server"
    for mark in ("ray::IDLE", "default_worker.py"):
        if mark in line:
            return "idle worker"
    if line.startswith("ray::"):
        return line.removeprefix("ray::").split(".")[0].split()[0]
    return Path(line.split()[0]).name if "python" not in line.split()[0] else f"other: {line[-40:]}"


def spent(pid: int) -> Spent | None:
    """Of all threads that live; None when the process has ended."""
    seconds, wakes = 0.0, 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
                status = (task / "status").read_text()
                wakes += int(status.partition("voluntary_ctxt_switches:")[2].split()[0])
    except OSError:
        return None
    return Spent(seconds, wakes)


@contextlib.contextmanager
def watched(client: Client, job: str, wanted: bool) -> Iterator[None]:
    """A stream of the job's metrics, as a page has it open, where wanted."""
    if not wanted:
        yield
        return
    code = f"import shardyard\nwith shardyard.Client() as c:\n    for _ in c.tail({job!r}): pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) as follower:
        yield
        follower.terminate()


def measure(plane: ControlPlane, ranks: int, seconds: float, watch: bool) -> None:
    with plane.client() as client:
        job = client.submit(spec(ranks, 1_000_000))

        def step() -> int:
            found = client.job(job.id)
            return found.progress.step if found.progress else 0

        until(lambda: step() > SETTLED, 300, f"step {SETTLED}")
        with watched(client, job.id, watch):
            names = kinds(plane)
            first, before, began = step(), {pid: spent(pid) for pid in names}, time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - began
            after, last = {pid: spent(pid) for pid in names}, step()
        client.cancel(job.id)
    table(names, before, after, last - first, took)


def table(
    names: dict[int, str],
    before: dict[int, Spent | None],
    after: dict[int, Spent | None],
    steps: int,
    took: float,
) -> None:
    count: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    wakes: Counter[str] = Counter()
    for pid, kind in names.items():
        old, new = before[pid], after[pid]
        if old is None or new is None:
            continue
        count[kind] += 1
        busy[kind] += new.seconds - old.seconds  # type: ignore[assignment]
        wakes[kind] += new.wakes - old.wakes
    print(f"{steps} steps in {took:.1f} s")
    print(f"| {'process':<20} | count | CPU ms per step | % of one core | wake-ups per s |")
    print("|---|---|---|---|---|")
    for kind, total in sorted(busy.items(), key=lambda item: -item[1]):
        line = f"| {kind:<20} | {count[kind]} | {1e3 * total / max(1, steps):.2f} | {100 * total / took:.1f} | {wakes[kind] / took:.0f} |"
        print(line)
    beside = sum(total for kind, total in busy.items() if kind != "trainer")
    print(
        f"beside the trainers: {1e3 * beside / max(1, steps):.2f} ms per step, {100 * beside / sum(busy.values()):.1f}% of all"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--watch", action="store_true")
    options = parser.parse_args()
    with running_control_plane() as plane:
        measure(plane, options.ranks, options.seconds, options.watch)


if __name__ == "__main__":
    main()
