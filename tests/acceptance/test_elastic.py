"""An elastic job loses half of its devices, goes on with the others from memory, and takes as many again when they are there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import ControlPlane, spec, until
from harness.nodes import Nodes, running_nodes
from harness.patience import PATIENCE_S
from harness.programs import lines, submitted

from shardyard.api.client import Client

#: More than the job will reach; the learning rate does not depend on it.
ENDLESS = 100_000
SAME: dict[str, Any] = {
    "precision": "fp64",
    "global_batch": 24,
    "schedule": {"name": "constant"},
    "eval": {"batches": 1},
    "checkpoint": {"final": False},
    "snapshot": {"every": 1},
}


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Two nodes with room for two ranks each."""
    with running_nodes([1, 1]) as nodes:
        yield nodes


@pytest.fixture
def plane(nodes: Nodes) -> Iterator[ControlPlane]:
    plane = ControlPlane()
    plane.given |= nodes.settings | {"SHARDYARD_CPU_RANKS_PER_CORE": "2"}
    try:
        plane.up()
        yield plane
    finally:
        plane.end()


def trains(client: Client, job: str, ranks: int, steps: int) -> int:
    """Wait until it trains on `ranks` ranks and has reported the given number of further steps; returns the last."""
    until(lambda: (now := client.job(job)).world_size == ranks and now.state == "running", PATIENCE_S, f"{ranks} ranks")
    before = client.job(job).progress
    since = 0 if before is None else before.step
    until(lambda: (now := client.job(job).progress) is not None and now.step >= since + steps, PATIENCE_S, "steps")
    return since + steps


#: Layouts of four ranks, which two ranks can go on with, and the text of these two.
REPLICAS: tuple[Any, ...] = ({"data": {"min": 1, "max": 4}}, ("data 4", "data 2"))
WORKERS: dict[str, Any] = {"data": {"min": 1, "max": 3}}
SERVED: tuple[Any, ...] = (
    WORKERS | {"parameter_server": {"servers": 1}},
    ("data 3, 1 parameter server", "data 1, 1 parameter server"),
)
STALE: tuple[Any, ...] = (
    WORKERS | {"parameter_server": {"servers": 1, "mode": "stale", "bound": 2}},
    ("data 3, 1 parameter server (stale, bound 2)", "data 1, 1 parameter server (stale, bound 2)"),
)


@pytest.mark.full
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("layout", "texts"), [REPLICAS, SERVED, STALE], ids=["replicas", "servers", "stale"])
def test_a_job_goes_on_with_fewer_replicas_and_grows_again(
    plane: ControlPlane, nodes: Nodes, layout: dict[str, Any], texts: tuple[str, str]
) -> None:
    """Workers beside parameter servers, too. Where these have clocks of their own, losses depend on the number of workers."""
    most, fewer = texts
    with plane.client() as client:
        body = spec("elastic", steps=ENDLESS, layout=layout, **SAME)
        job = client.submit(body | {"policy": {"elastic_grace_s": 3.0, "max_restarts": 0}}).id
        trains(client, job, 4, 5)
        nodes.kill_node(nodes.nodes[1])
        trains(client, job, 2, 5)
        nodes.add_node(1)
        last = trains(client, job, 4, 5)
        client.cancel(job)
        done = client.wait(job, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt, done.restarts) == ("cancelled", 3, 0)
        points = client.metrics(job, max_points=10_000).points
        assert [point.step for point in points[:last]] == list(range(1, last + 1))
        events = list(client.events(job))
        reported = [(event.data["after"], event.data["reason"]) for event in events if event.kind == "reshard"]
        assert reported == [(fewer, "no_room"), (most, "devices_free")]
        causes = [event.data["cause"] for event in events if event.kind == "incident"]
        assert "devices_lost" in causes and set(causes) <= {
            "node_lost",
            "devices_lost",
            "supervisor_lost",
            "loss_spike",
        }
        first, second = (max(p.step for p in points if p.attempt == attempt) for attempt in (1, 2))
        saved = [event.data["step"] for event in events if event.kind == "checkpoint"]
        assert saved[:2] == [first, second], "each attempt went on from the very last step of the one before"
        if "stale" in most:
            return
        whole = client.submit(spec("whole", steps=last, layout={"data": 1}, **SAME)).id
        assert client.wait(whole, timeout_s=600).state == "succeeded"
        curve = [point.loss for point in client.metrics(whole, max_points=10_000).points]
        assert [point.loss for point in points[:last]] == pytest.approx(curve, rel=1e-6)


#: Counts steps, and saves each; all ranks agree on the first.
COUNTS = """
import os, pathlib, time
import shardyard, torch, torch.distributed as dist
dist.init_process_group("gloo")
saved = shardyard.resume()
step = 0 if saved is None else saved.load()["step"]
if dist.get_rank() == 0:
    print("starts", os.environ["WORLD_SIZE"], step, flush=True)
while True:
    ones = torch.ones(1)
    dist.all_reduce(ones)
    assert ones.item() == dist.get_world_size()
    step += 1
    if dist.get_rank() == 0:
        shardyard.checkpoint({"step": step}, step=step)
    time.sleep(0.2)
"""


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_a_command_goes_on_with_fewer_ranks_and_grows_again(plane: ControlPlane, nodes: Nodes, tmp_path: Path) -> None:
    def newest() -> int:
        path = client.job(job).checkpoint
        return 0 if path is None else int(path.rpartition("-")[2])

    def runs(ranks: int, attempt: int) -> int:
        """Wait until it has saved a step with this number of ranks; returns the step."""

        def trains() -> bool:
            now = client.job(job)
            return (now.attempt, now.world_size, now.state) == (attempt, ranks, "running")

        until(trains, PATIENCE_S, f"{ranks} ranks")
        before = newest()
        until(lambda: newest() > before, PATIENCE_S, "a checkpoint")
        return newest()

    with plane.client() as client:
        policy = {"elastic_grace_s": 3.0, "max_restarts": 0}
        job = submitted(client, tmp_path, COUNTS, ranks={"min": 1, "max": 4}, policy=policy).id
        first = runs(4, attempt=1)
        nodes.kill_node(nodes.nodes[1])
        second = runs(2, attempt=2)
        nodes.add_node(1)
        third = runs(4, attempt=3)
        client.cancel(job)
        done = client.wait(job, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt, done.restarts, done.spec["ranks"]) == ("cancelled", 3, 0, 4)
        assert first < second < third
        starts = [line.split()[1:] for line in lines(client, job) if line.startswith("starts")]
        sizes, steps = [one[0] for one in starts], [int(one[1]) for one in starts]
        assert (sizes[0], sizes[-1], set(sizes)) == ("4", "4", {"4", "2"})
        assert steps[0] == 0 and steps == sorted(steps) and steps[-1] >= second
        events = list(client.events(job))
        reported = [(event.data["after"], event.data["reason"]) for event in events if event.kind == "reshard"]
        assert reported == [("2 ranks", "no_room"), ("4 ranks", "devices_free")]
        assert "devices_lost" in [event.data["cause"] for event in events if event.kind == "incident"]
