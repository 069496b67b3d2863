"""Traces that are ordered of a gang: reported once, whole or with the reason why not, whatever dies meanwhile; training goes on."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.workers.chrome_trace import chrome_trace
from shardyard.workers.messages.trace_request import Trace, slowest_rank

from .following import Event, closed, follow, is_step, kill_supervisor, pids, states
from .test_hang_watchdog import newest
from .test_repair import is_running, train_gang

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = 2
SLOW_S = 0.1


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


class Traced:
    """A gang that traces are ordered of, and all that it reported."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.events: list[Event] = []

    async def follow(self, until: Any = None) -> None:
        self.events += await follow(self.cluster, self.name, after=len(self.events), until=until)

    async def order(self, name: str, steps: int) -> None:
        import ray

        await ray.get_actor(self.name).trace.remote(Trace(name, steps).to_json())

    async def outcome(self, name: str) -> dict[str, Any]:
        """How the trace ended."""
        while not (found := self.of("trace_finished", name)):
            await self.follow(until=lambda event: event["kind"] == "trace_finished")
        (reported,) = found
        return reported

    def of(self, kind: str, name: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events if event["kind"] == kind and event["data"]["id"] == name]


def endless(name: str, folder: Path, layout: dict[str, Any]) -> Any:
    """Steps without end, so small that a slow rank shows."""
    more = {"steps": 100_000, "eval": {}, "checkpoint": {"final": False}}
    return train_gang(name, folder, layout, **more)


@pytest.mark.full  # tests/acceptance/test_trace.py is the core's
@pytest.mark.timeout(600)
async def test_a_trace_is_whole_and_reported_once(cluster: Cluster, tmp_path: Path) -> None:
    spec = endless("traced", tmp_path, {"pipeline": 2, "data": 2})
    await cluster.start_gang(spec)
    gang = Traced(cluster, spec.name)
    await gang.order("early", 2)  # it waits for the gang to train
    await gang.order("early", 2)
    assert (await gang.outcome("early"))["done"]
    part = tmp_path / "part"
    part.write_text(f"{SLOW_S}")
    part.rename(tmp_path / f"{SLOW}.slow")
    await gang.follow(until=is_step(newest(gang.events) + 3))
    await gang.order("slow", 3)
    await kill_supervisor(spec.name)
    ended = await gang.outcome("slow")
    await gang.follow(until=is_step(ended["steps"][1] + 3))

    for name, steps in (("early", 2), ("slow", 3)):
        (reported,) = gang.of("trace_finished", name)
        first, last = reported["steps"]
        assert (
            reported == {"id": name, "done": True, "message": "", "steps": [first, last]} and last - first == steps - 1
        )
        traces = gang.of("trace", name)
        whole = [(rank, step) for rank in range(4) for step in range(first, last + 1)]
        assert sorted((event["rank"], event["step"]) for event in traces) == whole
        for event in traces:
            assert sum(event["sums"].values()) == pytest.approx(event["seconds"], rel=0.02)
            assert event["pipeline"]["place"] == event["rank"] // 2
        document = chrome_trace(traces)
        assert {one["pid"] for one in document["traceEvents"]} == set(range(4))
    assert slowest_rank(gang.of("trace", "slow")) == SLOW
    await cluster.stop(spec.name, "cancel")
    await closed(cluster, spec.name, pids(tmp_path))


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_who_dies_during_a_trace_ends_it_and_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    spec = endless("torn", tmp_path, {"data": 4, "zero": 1})
    (tmp_path / "0.slow").write_text(f"{SLOW_S}")
    await cluster.start_gang(spec)
    gang = Traced(cluster, spec.name)
    await gang.follow(until=is_step(3))
    await gang.order("torn", 20)
    await gang.order("next", 1)  # waits its turn
    await gang.follow(until=is_step(newest(gang.events) + 6))
    os.kill(pids(tmp_path)[1], signal.SIGKILL)
    reported = await gang.outcome("torn")
    assert reported == {"id": "torn", "done": False, "message": "a repair ended it (rank_lost)", "steps": None}
    assert gang.of("trace", "torn") == []
    assert (await gang.outcome("next"))["done"]
    while states(gang.events).count("running") < 2:
        await gang.follow(until=is_running)
    assert len(gang.of("trace", "next")) == 4
    await gang.order("cut", 20)
    await gang.follow(until=is_step(newest(gang.events) + 6))
    await cluster.stop(spec.name, "cancel")
    await gang.follow()
    (reported,) = gang.of("trace_finished", "cut")
    assert not reported["done"] or reported["message"].endswith("of 20 steps: the training ended")
    await closed(cluster, spec.name, pids(tmp_path))
