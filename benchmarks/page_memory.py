"""Whether a job page that streams for half an hour keeps growing: the living bytes of its scripts, and its nodes, minute by minute.

    python benchmarks/page_memory.py [--minutes 30] [--every 60]

A job of one rank takes some ten steps a second, each with a validation now and then and a line of log, so that everything on the page
moves. Before each look the browser collects its garbage: what is counted is reachable. The growth is that of the last third over the
second: the first one fills what the page keeps.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness.chromium import chromium  # noqa: E402
from harness.control_plane import ControlPlane, running_control_plane, until  # noqa: E402
from harness.page import signed_in  # noqa: E402

MODULE = '''
import time

import torch


class Slow(torch.nn.Module):
    """Takes its time, not the processor's, and says something."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(256, 16)
        self.head = torch.nn.Linear(16, 256)
        self.calls = 0

    def forward(self, tokens):
        time.sleep(0.1)
        self.calls += 1
        print(f"call {self.calls}", flush=True)
        return self.head(self.embed(tokens))


def build() -> torch.nn.Module:
    return Slow()
'''


@dataclass(frozen=True)
class Observation:
    minute: float
    step: int
    bytes: float
    nodes: float


def spec(folder: Path) -> dict[str, Any]:
    (folder / "slow.py").write_text(MODULE)
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 2000)
    train = {
        "model": {"import": "slow:build", "code": str(folder)},
        "data": {"source": "text", "files": [str(text)], "seq_len": 32},
        "optimizer": {"lr": 0.001},
        "steps": 1_000_000,
        "global_batch": 4,
        "eval": {"every": 100, "batches": 1},
        "checkpoint": {"every": 2000},
    }
    return {"name": "streams", "train": train}


def look(page: Page, tools: CDPSession, began: float) -> Observation:
    """What is reachable now."""
    tools.send("HeapProfiler.collectGarbage")
    metrics = {each["name"]: each["value"] for each in tools.send("Performance.getMetrics")["metrics"]}
    shown = (page.locator(".job-head-progress strong").text_content() or "0").replace(",", "")
    return Observation((time.monotonic() - began) / 60, int(float(shown)), metrics["JSHeapUsedSize"], metrics["Nodes"])


def measure(plane: ControlPlane, minutes: float, every: float) -> list[Observation]:
    folder = plane.data / "slow"
    folder.mkdir()
    with plane.client() as client, chromium() as browser:
        job = client.submit(spec(folder)).id
        until(lambda: getattr(client.job(job).progress, "step", 0) > 20, 240, "a job that trains")
        page = signed_in(browser, client.url, plane.token).new_page()
        tools = page.context.new_cdp_session(page)
        tools.send("Performance.enable")
        page.goto(f"{client.url}/jobs/{job}/metrics")
        page.wait_for_selector(".chart canvas", timeout=240_000)
        began = time.monotonic()
        found: list[Observation] = []
        while not found or found[-1].minute < minutes:
            page.wait_for_timeout(every * 1000)
            found.append(look(page, tools, began))
            one = found[-1]
            print(
                f"  {one.minute:5.1f} min  step {one.step:>6}  {one.bytes / 1e6:6.2f} MB  {one.nodes:.0f} nodes",
                flush=True,
            )
        client.cancel(job)
    return found


def show(found: list[Observation]) -> None:
    third = len(found) // 3
    second, last = found[third : 2 * third], found[2 * third :]
    for name, of in (("bytes", lambda one: one.bytes), ("nodes", lambda one: one.nodes)):
        before, after = (statistics.median(map(of, part)) for part in (second, last))
        print(f"  {name}: last third / second third {after / before:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two looks")
    options = parser.parse_args()
    with running_control_plane() as plane:
        found = measure(plane, options.minutes, options.every)
    show(found)


if __name__ == "__main__":
    main()
