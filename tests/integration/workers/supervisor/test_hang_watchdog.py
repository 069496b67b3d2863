"""A gang that lives and does not get on: who holds it up is named, with its group and everybody's stacks, and training goes on."""

import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardyard.service.cluster.ray_cluster import Cluster

from .following import Event, closed, follow, is_step, pids, states
from .test_repair import curve, is_running, parameters, train_gang, unbroken

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYOUT = {"data": 2, "tensor": 2}
#: A stuck rank; `make test-all` also stops one, and `make chaos` draws ten.
SEEDS = int(os.environ.get("SHARDYARD_HANGS") or 1)
#: A rank that computes may get no core for some seconds on a busy machine, and is not to be accused for it.
HANG_S = 10.0
#: Seconds for which rank 0, and so all of them, rest before each step until one is held: a training that no one holds is over soon.
REST_S = 0.2


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


@pytest.mark.timeout(900)  # of six waits, each of which has its own
async def test_a_stuck_rank_and_a_stopped_one_are_named_and_cost_no_step_and_no_bit(
    cluster: Cluster, tmp_path: Path
) -> None:
    steps = 20 + 30 * SEEDS
    whole = await unbroken(cluster, "moving", tmp_path / "whole", LAYOUT, steps=steps)
    folder = tmp_path / "hung"
    hung = replace(train_gang("hung", folder, LAYOUT, max_repairs=99, steps=steps), hang_timeout_s=HANG_S)
    rests = _rest(folder)
    await cluster.start_gang(hung)
    events: list[Event] = []
    accused: list[tuple[int, str]] = []
    for seed in range(SEEDS):
        events += await follow(cluster, hung.name, after=len(events), until=is_running)
        events += await follow(cluster, hung.name, after=len(events), until=is_step(newest(events) + 3))
        rank, how = random.Random(seed).randrange(4), ("stuck", "stopped")[seed % 2]
        accused.append((rank, how))
        _hold(folder, rank, how)
        rests.unlink()
        events += await follow(cluster, hung.name, after=len(events), until=is_incident)
        if seed + 1 < SEEDS:
            _rest(folder)
    events += await follow(cluster, hung.name, after=len(events))

    incidents = [event["data"] for event in events if event["kind"] == "incident"]
    assert states(events) == ["starting", "running", *["recovering", "running"] * SEEDS, "succeeded"], incidents
    assert [(incident["cause"], incident["rank"]) for incident in incidents] == [
        ("hang", rank) for rank, _ in accused
    ], incidents
    for incident, (rank, how) in zip(incidents, accused, strict=True):
        _understood(incident, rank, how)
    assert curve(events) == curve(whole)
    assert parameters(tmp_path / "hung") == parameters(tmp_path / "whole")
    await closed(cluster, hung.name, pids(folder))


def newest(events: list[Event]) -> int:
    """The newest step that was reported."""
    return max((event["data"]["step"] for event in events if event["kind"] == "step"), default=0)


def is_incident(event: Event) -> bool:
    return bool(event["kind"] == "incident")


def _rest(folder: Path) -> Path:
    """The file while which is there all ranks rest. It is there at once: who looks for it must not find it empty."""
    part, file = folder / "0.part", folder / "0.slow"
    part.write_text(f"{REST_S}")
    part.rename(file)
    return file


def _hold(folder: Path, rank: int, how: str) -> None:
    """Only this process: the one that takes its place trains on."""
    pid = pids(folder)[rank]
    if how == "stuck":
        (folder / f"{pid}.stuck").touch()
    else:
        os.kill(pid, signal.SIGSTOP)


def _understood(incident: dict[str, Any], rank: int, how: str) -> None:
    """Group, collective, stacks and log say what a person needs to know."""
    waits = [wait for wait in incident["waiting"] if rank in wait["members"] and rank not in wait["ranks"]]
    stacks = "\n".join(entry["stack"] for entry in incident["stacks"])
    assert sorted(r for entry in incident["stacks"] for r in entry["ranks"]) == [0, 1, 2, 3]
    if how == "stopped":
        assert "stopped" in incident["message"], incident
        assert 'Thread (idle): "MainThread"' in stacks or "most recent call first" in "\n".join(incident["log"]), (
            incident
        )
        return
    # The rank never entered its next step, whose first collective is its tensor group's. Which of those who wait came first is chance.
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    assert any((wait["group"], wait["members"]) == ("tensor", pair) and wait["seq"] > 0 for wait in waits), waits
    said = [f"{wait['op']} {wait['seq']} of the {wait['group']} group (ranks {wait['members'][0]}, " for wait in waits]
    assert any(words in incident["message"] for words in said), (incident["message"], said)
    assert "_stick" in stacks and "this rank is stuck" in incident["log"]
