"""How late a step reaches many open job pages that one API worker serves: from its end in the trainer to the page's socket.

    python benchmarks/streams.py [--pages 1 200] [--seconds 20] [--rounds 3]

One job of one small rank trains meanwhile, so that steps come as fast as anybody's. The pages' connections take turns with few of them,
within each round. Seconds are those of this machine; the worker's processor time per second of streaming says what bounds it.
"""

import argparse
import asyncio
import re
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness.control_plane import ControlPlane, running_control_plane, until  # noqa: E402

#: Seconds after every page received a first step before anything counts: late pages have caught up by then.
SETTLE_S = 3.0
_TS = re.compile(rb'"ts": ?([0-9.]+)')


@dataclass
class Received:
    """What the pages of one turn got."""

    pages: int
    late_s: list[float] = field(default_factory=list)
    worked: float = 0.0  # the API's processor time per second

    def percentile(self, share: float) -> float:
        return sorted(self.late_s)[min(int(share * len(self.late_s)), len(self.late_s) - 1)]


def spec() -> dict[str, Any]:
    """A rank that trains as long as anybody watches, some ten steps a second."""
    train = {
        "model": {"preset": "nano", "layers": 1, "dim": 32, "heads": 2, "kv_heads": 1, "hidden": 64},
        "data": {"seq_len": 64},
        "steps": 1_000_000,
        "global_batch": 32,
        "eval": {"batches": 1},
        "checkpoint": {"final": False},
    }
    return {"name": "streams", "train": train}


async def turn(plane: ControlPlane, job: str, pages: int, seconds: float) -> Received:
    """Open the pages, let them settle, and record what they receive for this many seconds."""
    with plane.client() as client:
        url, since = urlsplit(client.url), client.job(job).progress
    received, counting = Received(pages), asyncio.Event()
    after = f"0.{since.step}.0" if since else "0.0.0"
    first = [asyncio.Event() for _ in range(pages)]
    open_ = [asyncio.create_task(_page(plane, url.netloc, job, after, received, counting, one)) for one in first]
    async with asyncio.timeout(120):
        await asyncio.gather(*(one.wait() for one in first))
    await asyncio.sleep(SETTLE_S)
    api = [process for process in plane.processes() if _is_api(process)]
    before, began = _worked(api), time.monotonic()
    counting.set()
    await asyncio.sleep(seconds)
    counting.clear()
    received.worked = (_worked(api) - before) / (time.monotonic() - began)
    for task in open_:
        task.cancel()
    for ended in await asyncio.gather(*open_, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    return received


async def _page(
    plane: ControlPlane,
    netloc: str,
    job: str,
    after: str,
    received: Received,
    counting: asyncio.Event,
    first: asyncio.Event,
) -> None:
    """A page's stream, read as cheaply as can be: two hundred readers share this process."""
    host, _, port = netloc.partition(":")
    reader, writer = await asyncio.open_connection(host, port)
    try:
        request = f"GET /v1/jobs/{job}/events?after={after} HTTP/1.1\r\nHost: {netloc}\r\n"
        writer.write(f"{request}Authorization: Bearer {plane.token}\r\n\r\n".encode())
        step = False
        while line := await reader.readline():
            if line.startswith(b"event:"):
                step = line == b"event: step\n"
                if step:
                    first.set()
            elif step and counting.is_set() and (found := _TS.search(line)):
                received.late_s.append(time.time() - float(found[1]))
        raise ConnectionError("the stream has ended")
    finally:
        writer.close()


def _is_api(process: psutil.Process) -> bool:
    command = " ".join(process.cmdline())
    return "shardyard.api.cli" in command and " up" in command


def _worked(processes: list[psutil.Process]) -> float:
    """Seconds of processor time."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure(pages: list[int], seconds: float, rounds: int) -> list[Received]:
    found = []
    with running_control_plane() as plane, plane.client() as client:
        job = client.submit(spec()).id
        until(lambda: getattr(client.job(job).progress, "step", 0) > 20, 180, "a settled job")
        for _ in range(rounds):
            for count in pages:
                received = asyncio.run(turn(plane, job, count, seconds))
                found.append(received)
                print(
                    f"  {count:>4} pages: p50 {received.percentile(0.5):.2f} s, p99 {received.percentile(0.99):.2f} s, "
                    f"{len(received.late_s) / count / seconds:.0f} steps/s each, API {received.worked:.2f} s/s",
                    flush=True,
                )
        client.cancel(job)
    return found


def show(found: list[Received]) -> None:
    for pages in sorted({received.pages for received in found}):
        p99 = [received.percentile(0.99) for received in found if received.pages == pages]
        print(
            f"  {pages:>4} pages: p99 {statistics.median(p99):.2f} ({min(p99):.2f}–{max(p99):.2f}) s   target < 1 at 200"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, nargs="+", default=[1, 200])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    show(measure(options.pages, options.seconds, options.rounds))


if __name__ == "__main__":
    main()
