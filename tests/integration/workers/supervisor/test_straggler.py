"""A rank that is slower than its peers is named, once, with when it began and that it ended; no other rank is, and nothing is repaired."""

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.workers.messages.gang_spec import StragglerLimits

from .following import Event, closed, follow, is_step, pids, states
from .test_repair import train_gang

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYOUTS: list[dict[str, Any]] = [
    {"data": 4, "zero": 1},
    {"data": 2, "tensor": 2},
    {"pipeline": 4},  # no two ranks do equal work: each rank is held against its own past
]
#: So much slower than its peers no rank of an even gang is for long, on whatever machine. The seconds are those of more slow steps than
#: `steps`: where load made the rank late in some steps before, these are no longer among the last ones, of which the medians are.
LIMITS = StragglerLimits(factor=2.5, steps=10, seconds=15.0)
EVEN = 20
SLOW = 2
#: It sleeps for this multiple of a step's duration on this machine.
TIMES = 5


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.full
async def test_a_slow_rank_is_named_and_so_is_its_recovery(
    cluster: Cluster, tmp_path: Path, layout: dict[str, Any]
) -> None:
    name = "slow-" + "-".join(f"{key}{value}" for key, value in layout.items())
    model = {"preset": "nano", "layers": 4, "dim": 32, "heads": 4, "kv_heads": 2, "hidden": 64}
    train = {
        "model": model,
        "steps": 100_000,
        "global_batch": 8,
        "snapshot": {"every": 0},
        "eval": {},
        "checkpoint": {"final": False},
    }
    gang = replace(train_gang(name, tmp_path, layout, **train), straggler=LIMITS)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(EVEN))
    slow = tmp_path / f"{SLOW}.slow"
    slow_s = TIMES * statistics.median(event["data"]["step_s"] for event in events if event["kind"] == "step")
    _write(slow, f"{slow_s}")
    events += await follow(cluster, gang.name, after=len(events), until=is_incident)
    slow.unlink()
    events += await follow(cluster, gang.name, after=len(events), until=is_incident)
    await cluster.stop(gang.name, "cancel")
    events += await follow(cluster, gang.name, after=len(events))

    assert states(events) == ["starting", "running", "cancelled"], events[-1]
    begun, ended = (event["data"] for event in events if event["kind"] == "incident")
    assert (begun["cause"], begun["rank"], ended["cause"], ended["rank"]) == (
        "straggler",
        SLOW,
        "straggler_over",
        SLOW,
    ), (begun, ended)
    assert begun["node"] and EVEN - 1 <= begun["since"] < begun["step"] < ended["step"]
    assert begun["busy_s"] >= slow_s > ended["busy_s"], (begun, ended)
    assert begun["peers"] == ([] if "pipeline" in layout else [0, 1, 3])
    await closed(cluster, gang.name, pids(tmp_path))


def _write(file: Path, text: str) -> None:
    """At once: who looks for it must not find it empty."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.rename(file)


def is_incident(event: Event) -> bool:
    return bool(event["kind"] == "incident")
