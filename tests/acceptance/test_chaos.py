"""Whatever happens to whom, every job succeeds, each step is stored once, and the parameters are those of a run to which nothing happened.

`make chaos SEED=… N=…` draws more faults; a few of each kind come with every run of the tests.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.chaos import Fault, actors, drawn, strike_all, trainers
from harness.plane import Plane, spec, until

from shardyard import Client

SEED = int(os.environ.get("CHAOS_SEED", "0"))
COUNT = int(os.environ.get("CHAOS_COUNT", "6"))
#: Faults per job: so many that they also meet each other's repairs.
EACH = 3
LAYOUTS: list[dict[str, Any]] = [
    {"data": 4, "zero": 1},
    {"data": 2, "pipeline": 2, "zero": 1},
    {"data": 4, "zero": 3},
    {"data": 2, "tensor": 2},
    {"data": 2, "context": 2, "zero": 2},
    {"tensor": 2, "pipeline": 2},
]
STEPS = 60 + 60 * EACH
MOST_JOBS = 4 * (COUNT + 1)


@pytest.mark.timeout(600 + 120 * COUNT)
def test_no_fault_is_seen_in_the_numbers(fresh_plane: Plane, capsys: pytest.CaptureFixture[str]) -> None:
    fresh_plane.up()
    faults = iter(drawn(SEED, COUNT))
    left = COUNT
    whole: dict[int, tuple[Any, Any]] = {}
    for jobs in range(MOST_JOBS):
        if left == 0:
            break
        number = jobs % len(LAYOUTS)
        if number not in whole:
            whole[number] = _outcome(fresh_plane, _submit(fresh_plane, f"whole-{number}", number))
        job = _submit(fresh_plane, f"broken-{number}-{jobs}", number)
        struck = _struck(fresh_plane, job, faults, min(EACH, left))
        left -= len(struck)
        told = f"layout {LAYOUTS[number]}, faults {', '.join(map(str, struck))} (CHAOS_SEED={SEED})"
        with capsys.disabled():
            print(f"\n  {told}", flush=True)
        curve, parameters = _outcome(fresh_plane, job, told)
        assert curve == whole[number][0], told
        assert parameters == whole[number][1], told
    assert left == 0, "faults found no running job"
    until(lambda: not trainers(fresh_plane) and not actors(fresh_plane, "Rank"), 30, "all ranks to end")
    with fresh_plane.client() as client:
        until(lambda: sum(node.cpu_used for node in client.nodes()) < 1e-6, 60, "all devices to be free")


def _struck(plane: Plane, job: str, faults: Iterator[Fault], most: int) -> list[Fault]:
    try:
        return strike_all(plane, job, faults, most, lambda: _step(plane, job))
    except AssertionError as error:
        with plane.client() as client:
            raise AssertionError(f"{error}\n{client.job(job).state}\n{_story(client, job)}") from error


def _submit(plane: Plane, name: str, number: int) -> str:
    train = {"snapshot": {"every": 1}, "checkpoint": {"every": 40, "keep": 3}, "precision": "bf16"}
    body = spec(name, steps=STEPS, layout=LAYOUTS[number], **train) | {"policy": {"hang_s": 3, "max_repairs": 100}}
    with plane.client() as client:
        return client.submit(body).id


def _step(plane: Plane, job: str) -> int | None:
    """The newest step that is stored, while the job runs."""
    with plane.client() as client:
        found = client.job(job)
    if found.state in ("succeeded", "failed", "cancelled"):
        return None
    return found.progress.step if found.progress and found.state == "running" else 0


def _outcome(plane: Plane, job: str, told: str = "") -> tuple[Any, Any]:
    """The curve, each step once, and the last checkpoint's values."""
    with plane.client() as client:
        done = client.wait(job, timeout_s=240)
        assert (done.state, done.attempt) == ("succeeded", 1), f"{told}: {done.message}\n{_story(client, job)}"
        points = client.metrics(job, max_points=10_000).points
    assert [point.step for point in points] == list(range(1, STEPS + 1)), told
    return [(point.loss, point.grad_norm) for point in points], _parameters(plane, job)


def _story(client: Client, job: str) -> str:
    return "\n".join(incident.story for incident in client.incidents(job).items)


def _parameters(plane: Plane, job: str) -> dict[str, bytes]:
    """The last checkpoint's files by rank; what follows the rank in a name is of that save alone."""
    (last,) = plane.data.glob(f"**/{job}/step-{STEPS:08d}")
    return {_rank(file): file.read_bytes() for file in last.glob("rank-*")}


def _rank(file: Path) -> str:
    return file.name[:10]
