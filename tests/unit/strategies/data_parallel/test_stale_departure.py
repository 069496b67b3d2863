"""Three workers and two servers, of which a worker ends at any place of a step: the others meet, and a serial replay has the same bits."""

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.ranks import group, spawn
from harness.recorded_pushes import furthest_ahead

from shardyard.strategies.data_parallel.clocks import Meeting
from shardyard.strategies.data_parallel.stale_messages import Push
from shardyard.strategies.data_parallel.stale_server import StaleServer
from shardyard.strategies.data_parallel.stale_worker import StaleWorker
from shardyard.strategies.parallelize import parallelize

from .test_stale_server import CLOCKS, FACTOR, SERVERS, WORKERS, replay, rows, serve, stale_recipe

#: The worker that goes, and the step in which it does.
GOES, STEP = 1, 3


class Killed(Exception):
    """Ends the process where it is raised: the harness leaves without a clean-up, as a killed one does."""


def run(rank: int, world: int, port: int, mode: dict[str, Any], where: str) -> Any:
    recipe, mesh = stale_recipe(group(rank, world, port), mode)
    parallel = parallelize(recipe, mesh)
    data = parallel.data
    if isinstance(data, StaleServer):
        if where == "given up":
            data.lose(GOES)
        return serve(data)
    assert isinstance(data, StaleWorker)
    silent = where == "given up"  # and its connections stay open until all others have ended
    try:
        found = None if silent and rank == GOES else compute(rank, data, parallel.parts[0], where)
    except Killed:
        return None
    if silent and rank in (0, GOES):
        dist.barrier(dist.new_group([0, GOES], use_local_synchronization=True))
    return found


def compute(rank: int, data: StaleWorker, whole: torch.nn.Module, where: str) -> Any:
    data.publish()
    for clock in range(1, CLOCKS + 1):
        time.sleep(0.002 * rank)
        goes = where if (rank, clock) == (GOES, STEP) else ""
        if goes == "before the step":
            raise Killed
        data.before_backward(last=True)
        loss = whole(rows(rank, clock)).square().sum()
        loss.backward()
        data.reduce()
        if goes == "with its gradients sent":
            raise Killed
        push = Push(FACTOR, loss.item(), data.square_sum(), 1.0, False)
        if goes == "between two servers":
            data.clock += 1
            data._request(data._first, push=push)
            data._pushed.pop()()
            raise Killed
        data.push(push)
        if goes == "with its push sent":
            for wait in data._pushed:
                wait()
            raise Killed
        found = data.pull(clock == CLOCKS)
    data.settle()
    data.close()
    return found, {name: value.detach().numpy() for name, value in whole.named_parameters()}, data.take_totals()


BOUNDED = {"mode": "stale", "bound": 1}
FULL = pytest.mark.full
#: The pushes of the worker that goes, at each server.
PUSHES = {
    "before the step": (2, 2),
    "with its gradients sent": (2, 2),
    "between two servers": (3, 2),
    "with its push sent": (3, 3),
    "given up": (0, 0),
}


@pytest.mark.parametrize(
    ("mode", "where"),
    [
        (BOUNDED, "between two servers"),
        pytest.param(BOUNDED, "before the step", marks=FULL),
        pytest.param(BOUNDED, "with its gradients sent", marks=FULL),
        pytest.param(BOUNDED, "given up", marks=FULL),
        pytest.param({"mode": "async"}, "with its push sent", marks=FULL),
        pytest.param({"mode": "stale", "bound": 0}, "before the step", marks=FULL),
    ],
    ids=str,
)
def test_the_others_go_on_and_a_replay_has_the_same_bits(mode: dict[str, Any], where: str) -> None:
    results = spawn(run, WORKERS + SERVERS, mode, where, until_all=False)
    workers, servers = results[:WORKERS], results[WORKERS:]
    records = [record for record, *_ in servers]
    values, totals = replay(records, [list(own) for _, _, own, _ in servers])
    left = [result for result in workers if result is not None]
    assert len(left) == WORKERS - 1
    for found in [own for _, _, own, _ in servers] + [own for _, own, _ in left]:
        assert all(torch.equal(torch.from_numpy(value), values[name]) for name, value in found.items())
    assert [met for met, *_ in left] == [Meeting.PARTIAL] * len(left)
    for record, pushes in zip(records, PUSHES[where], strict=True):
        of_each = [sum(line[:2] == ("push", worker) for line in record) for worker in range(WORKERS)]
        assert of_each == [pushes if worker == GOES else CLOCKS for worker in range(WORKERS)]
        assert [line for line in record if line[0] == "leave"] == [("leave", GOES, pushes)]
        assert furthest_ahead(record, WORKERS) <= mode.get("bound", CLOCKS)
    assert [known.loss for known in workers[0][2]] == pytest.approx(list(totals.values()), rel=1e-14)


def test_worker_0_reports_on_the_job_and_its_end_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="worker 0, which reports on the job, is gone"):
        spawn(first_goes, WORKERS + SERVERS, until_all=False)


def first_goes(rank: int, world: int, port: int) -> Any:
    recipe, mesh = stale_recipe(group(rank, world, port), BOUNDED)
    data = parallelize(recipe, mesh).data
    data.publish()
    if isinstance(data, StaleServer):
        data.serve(1, lambda _: None)
    else:  # worker 0 goes when all have their first values, for which they ask the servers
        dist.barrier(dist.new_group(list(range(WORKERS)), use_local_synchronization=True))
        if rank:
            time.sleep(600)  # the harness ends it with the others
