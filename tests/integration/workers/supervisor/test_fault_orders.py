"""Faults that are ordered of a gang: each is injected and reported once, though ordered twice and though the supervisor dies between."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.errors import ClusterError
from shardyard.workers.messages.fault_request import Fault, Kind
from shardyard.workers.messages.gang_spec import GangSpec

from .following import Event, closed, follow, is_step, pids, states
from .test_hang_watchdog import newest
from .test_repair import curve, is_running, parameters, train_gang

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYOUT = {"data": 2, "zero": 1}
STEPS = 200
#: What a slow rank's steps take longer, in seconds.
SLOW_S = 0.2


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


class FaultyGang:
    """A gang that faults are ordered of, and all that it reported."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.events: list[Event] = []

    async def follow(self, until: Any = None) -> None:
        self.events += await follow(self.cluster, self.name, after=len(self.events), until=until)

    async def inject(self, kind: Kind, rank: int | None = None, **slow: float) -> None:
        """Order it twice, and follow until it is reported."""
        fault = Fault(f"fault-{len(self.reported())}", kind, rank, **slow)
        for _ in range(2):
            await self._order(fault)
        await self.follow(until=lambda event: event["kind"] == "fault" and event["data"]["id"] == fault.id)

    async def _order(self, fault: Fault) -> None:
        try:
            await self.cluster.deliver(self.name, fault)
        except ClusterError:  # of a supervisor that just died of it: the dispatcher asks again, too
            await self._order(fault)

    async def train(self, steps: int) -> None:
        await self.follow(until=is_step(newest(self.events) + steps))

    async def repaired(self, times: int) -> None:
        """Follow until it trains again after this number of repairs."""
        while states(self.events).count("running") <= times:
            await self.follow(until=is_running)

    def reported(self) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events if event["kind"] == "fault"]


def is_slow(event: Event) -> bool:
    return bool(event["kind"] == "step" and event["data"]["step_s_max"] >= SLOW_S)


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_each_fault_is_injected_once_and_the_numbers_do_not_show_it(cluster: Cluster, tmp_path: Path) -> None:
    whole = FaultyGang(cluster, small_gang("spared", tmp_path / "whole").name)
    await cluster.start_gang(small_gang("spared", tmp_path / "whole"))
    await whole.follow()
    spec = small_gang("injected", tmp_path / "injected")
    await cluster.start_gang(spec)
    gang = FaultyGang(cluster, spec.name)
    await gang.follow(until=lambda event: event["kind"] == "checkpoint")
    await gang.inject("slow-rank", 0, delay_ms=1000 * SLOW_S, duration_s=3600.0)
    await gang.follow(until=is_slow)
    await gang.inject("kill-rank", 0)
    await gang.repaired(1)
    await gang.inject("kill-supervisor")
    await gang.train(3)
    await gang.inject("hang-rank", 1)
    await gang.repaired(2)
    await gang.inject("corrupt-checkpoint")
    slow_to = newest(gang.events)
    await gang.inject("kill-actor", 0)
    await gang.follow()

    reported = gang.reported()
    kinds = ["slow-rank", "kill-rank", "kill-supervisor", "hang-rank", "corrupt-checkpoint", "kill-actor"]
    assert [data["fault"] for data in reported] == kinds and all(data["done"] for data in reported)
    causes = [event["data"]["cause"] for event in gang.events if event["kind"] == "incident"]
    assert causes == ["rank_lost", "supervisor_lost", "hang", "rank_lost"]
    assert states(gang.events) == ["starting", "running", *["recovering", "running"] * 3, "succeeded"]
    last = [
        event for event in gang.events if event["kind"] == "step" and slow_to - 2 <= event["data"]["step"] <= slow_to
    ]
    assert all(is_slow(event) for event in last), "the slowness outlives its trainer"
    assert [event["seq"] for event in gang.events] == list(range(1, len(gang.events) + 1))
    assert curve(gang.events) == curve(whole.events)
    assert parameters(tmp_path / "injected") == parameters(tmp_path / "whole")
    await closed(cluster, whole.name, pids(tmp_path / "whole", 2))
    await closed(cluster, spec.name, pids(tmp_path / "injected", 2))


def small_gang(name: str, folder: Path) -> GangSpec:
    spec = train_gang(name, folder, LAYOUT, max_repairs=9, steps=STEPS, checkpoint={"every": 10}, eval={"every": None})
    return replace(
        spec, world_size=2, hang_timeout_s=4.0, run=spec.run | {"checkpoints": spec.run["run"]["checkpoints"]}
    )
