"""How long a list of jobs takes beside ten clients that search a log without a pause, on SQLite, over HTTP.

    python benchmarks/log_search.py [--searchers 10] [--seconds 10] [--rounds 3] [--against CHECKOUT]

The log is the worst that a search can meet: 20,000 lines of 1,000 characters, one in two of them nearly what is searched for all along.
Each version serves from a process and a database of its own; `--against` names the checkout of another version, which takes turns with
this one within each round. The target is a p99 of 100 ms at most.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import sqlite3
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

ROOT = Path(__file__).parents[1]
LINES, LENGTH = 20_000, 1_000
TEXT = "a" * 254 + "b"
TARGET_S = 0.1
TOKEN = "a-token-of-the-bench-" + "0123456789" * 3
SIGNED = {"Authorization": f"Bearer {TOKEN}"}
#: Seconds between two list requests.
PAUSE_S = 0.02
_SPEC = {"name": "searched", "train": {"steps": 20, "global_batch": 8, "data": {"seq_len": 64}}}


@dataclass
class Turn:
    """What one turn of a version measured."""

    name: str
    listed_s: list[float] = field(default_factory=list)
    searches: int = 0
    refused: int = 0

    def percentile(self, share: float) -> float:
        return sorted(self.listed_s)[min(int(share * len(self.listed_s)), len(self.listed_s) - 1)]


@contextlib.contextmanager
def served(checkout: Path) -> Iterator[str]:
    """The API of a checkout over a database with the log; yields its address."""
    with tempfile.TemporaryDirectory(prefix="sy-search-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        env = {
            **os.environ,
            "SHARDYARD_DATA_DIR": folder,
            "SHARDYARD_TOKEN": TOKEN,
            "PYTHONPATH": str(checkout / "typings"),
        }
        command = [sys.executable, "-m", "shardyard.api.cli"]
        subprocess.run([*command, "migrate"], env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=60)
        free.close()
        process = subprocess.Popen([*command, "api", "--port", str(port)], env=env, cwd=folder)
        try:
            url = f"http://127.0.0.1:{port}"
            _await(f"{url}/healthz", process)
            job = httpx2.post(f"{url}/v1/jobs", json=_SPEC, timeout=60, headers=SIGNED).raise_for_status().json()["id"]
            _write(Path(folder) / "shardyard.db", job)
            yield f"{url}/v1/jobs"
        finally:
            process.terminate()
            process.wait(30)


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(url).status_code == 200:
                return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError("the API did not start")


def _write(file: Path, job: str) -> None:
    """The log, as the ingest would have stored it."""
    dice = random.Random(0)
    words = ["".join(dice.choices(string.ascii_lowercase, k=dice.randint(2, 9))) for _ in range(2000)]
    with contextlib.closing(sqlite3.connect(file, timeout=60)) as database, database:
        rows = ((job, n, 1, 0, "stdout", n, _line(n, dice, words), 1000.0 + n) for n in range(1, LINES + 1))
        database.executemany(
            "INSERT INTO logs (job_id, position, attempt, rank, stream, line, text, ts) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        database.execute("UPDATE jobs SET log_pos = ? WHERE id = ?", (LINES, job))


def _line(n: int, dice: random.Random, words: list[str]) -> str:
    return "a" * LENGTH if n % 2 else " ".join(dice.choices(words, k=LENGTH // 5))[:LENGTH]


async def turn(name: str, url: str, searchers: int, seconds: float) -> Turn:
    """Lists, one after the other, beside this number of clients that search."""
    measured = Turn(name)
    # no limit on connections: a list must not wait for one behind the searches
    async with httpx2.AsyncClient(timeout=600, headers=SIGNED, limits=httpx2.Limits(max_connections=None)) as client:
        searching = [asyncio.create_task(_search(client, url, measured)) for _ in range(searchers)]
        await asyncio.sleep(1.0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            (await client.get(url, params={"limit": 50})).raise_for_status()
            measured.listed_s.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE_S)
        for task in searching:
            task.cancel()
        await asyncio.gather(*searching, return_exceptions=True)
    return measured


async def _search(client: httpx2.AsyncClient, url: str, measured: Turn) -> None:
    after = 0
    while True:
        answer = await client.get(f"{url}/searched/logs/search", params={"text": TEXT, "after": after})
        if answer.status_code == 503:
            measured.refused += 1
            await asyncio.sleep(float(answer.headers["Retry-After"]))
            continue
        page = answer.raise_for_status().json()
        after = 0 if page["done"] else page["scanned_to"]
        measured.searches += 1


def measure(options: argparse.Namespace) -> list[Turn]:
    checkouts = {"this": ROOT, **({"against": options.against.resolve()} if options.against else {})}
    turns = []
    with contextlib.ExitStack() as stack:
        urls = {name: stack.enter_context(served(checkout)) for name, checkout in checkouts.items()}
        for _ in range(options.rounds):
            for name, url in urls.items():
                measured = asyncio.run(turn(name, url, options.searchers, options.seconds))
                turns.append(measured)
                print(
                    f"  {name:>8}: {len(measured.listed_s)} lists, p50 {measured.percentile(0.5) * 1e3:.0f} ms, "
                    f"p99 {measured.percentile(0.99) * 1e3:.0f} ms, {measured.searches} searches, {measured.refused} refused",
                    flush=True,
                )
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searchers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--json", action="store_true", help="print all latencies")
    options = parser.parse_args()
    turns = measure(options)
    for name in dict.fromkeys(measured.name for measured in turns):
        p99 = [measured.percentile(0.99) for measured in turns if measured.name == name]
        low, middle, high = (f"{value * 1e3:.0f}" for value in (min(p99), statistics.median(p99), max(p99)))
        print(f"  {name:>8}: p99 {middle} ({low}–{high}) ms   target ≤ {TARGET_S * 1e3:.0f}")
    if options.json:
        print(json.dumps([vars(measured) for measured in turns]))


if __name__ == "__main__":
    main()
