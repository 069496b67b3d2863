"""Three workers and two servers: a serial replay of the recorded orders, which shares no code with them, has the same bits."""

import time
from typing import Any

import pytest
import torch
from harness.ranks import group, spawn
from harness.recorded_pushes import Line, furthest_ahead, in_order, met
from torch import nn

from shardyard.strategies.batch import Batch
from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.data_parallel.stale_messages import Push
from shardyard.strategies.data_parallel.stale_server import StaleServer
from shardyard.strategies.data_parallel.stale_worker import StaleWorker
from shardyard.strategies.layout import Layout
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions
from shardyard.strategies.mesh import Mesh, make_mesh
from shardyard.strategies.parallelize import Recipe, parallelize
from shardyard.strategies.precision import PRECISIONS

WORKERS, SERVERS, CLOCKS, TOGETHER, WIDTH = 3, 2, 6, (4, 6), 6
RATE, FACTOR = 0.05, 0.5
LAYOUT = {"data": WORKERS, "parameter_server": {"servers": SERVERS}}


def model() -> nn.Module:
    """Sizes differ, so that servers hold different numbers of parameters; one parameter never has a gradient."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, 9), nn.Tanh(), nn.Linear(9, 4), nn.Tanh(), nn.Linear(4, 1)]
    whole = nn.Sequential(*layers).double()
    whole.register_parameter("idle", nn.Parameter(torch.ones(3, dtype=torch.float64)))
    return whole


def rows(worker: int, clock: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(100 * worker + clock)
    return torch.randn(5, WIDTH, generator=draw, dtype=torch.float64)


def stale_recipe(device: torch.device, mode: dict[str, Any]) -> tuple[Recipe, Mesh]:
    """The recipe, and the mesh on the running process group."""
    layout = Layout.model_validate({**LAYOUT, "parameter_server": {"servers": SERVERS, **mode}})
    loss, batch = TokenLoss(1), Batch(WORKERS * 5, WORKERS, 1, 5)
    overlap = Overlap(bucket_mb=1e-4)
    recipe = Recipe(model, False, batch, PRECISIONS["fp64"], MemoryOptions(), loss, overlap, loss.share)
    return recipe, make_mesh(layout, device)


def run(rank: int, world: int, port: int, mode: dict[str, Any], wants: int) -> Any:
    """`wants`: the clock at which the slowest worker wants all to meet soon; 0: none."""
    recipe, mesh = stale_recipe(group(rank, world, port), mode)
    parallel = parallelize(recipe, mesh)
    data = parallel.data
    if isinstance(data, StaleServer):
        return serve(data)
    assert isinstance(data, StaleWorker)
    with torch.no_grad():
        for value in parallel.parts[0].parameters():
            value.fill_(torch.nan)  # what a worker computes with, it has from the servers
    return compute(rank, data, parallel.parts[0], wants)


def serve(data: StaleServer) -> Any:
    data.clocks.record = []

    def update(clock: int) -> None:
        assert 1 <= clock <= CLOCKS
        for shard in data.shards:
            assert shard.gradient is not None
            shard.tensor.sub_(RATE * shard.gradient)

    data.publish()
    at = [clock for clock in range(1, CLOCKS + 1) if data.serve(clock, update)]
    data.settle()
    data.close()
    record = [(one.kind, one.worker, one.clock) for one in data.clocks.record]
    return record, at, {shard.name: shard.tensor.numpy() for shard in data.shards}, data.gradient_peak


def compute(rank: int, data: StaleWorker, whole: nn.Module, wants: int) -> Any:
    data.publish()
    at = []
    for clock in range(1, CLOCKS + 1):
        time.sleep(0.002 * rank)  # workers of different speed
        data.before_backward(last=True)
        loss = whole(rows(rank, clock)).square().sum()
        loss.backward()
        data.reduce()
        soon = rank == WORKERS - 1 and clock == wants
        data.push(Push(FACTOR, loss.item(), data.square_sum(), 1.0, soon))
        if data.pull(clock in TOGETHER):
            at.append(clock)
    data.settle()
    data.close()
    return at, {name: value.detach().numpy() for name, value in whole.named_parameters()}, data.take_totals()


def replay(records: list[list[Line]], held: list[list[str]]) -> tuple[dict[str, torch.Tensor], dict[int, float]]:
    """One process: the last values, and the sum of each clock's losses."""
    whole = model()
    values = {name: value.detach().clone() for name, value in whole.named_parameters()}
    seen: dict[tuple[int, int], dict[str, torch.Tensor]] = {}
    losses: dict[tuple[int, int], float] = {}
    for server, (kind, worker, clock) in in_order(records):
        if kind == "pull":
            own = {name: values[name].clone() for name in held[server]}
            seen.setdefault((worker, clock), {}).update(own)
        if kind != "push":
            continue
        whole.load_state_dict(seen[worker, clock - 1])
        whole.zero_grad()
        loss = whole(rows(worker, clock)).square().sum()
        loss.backward()
        losses[worker, clock] = loss.item()
        for name in held[server]:
            gradient = whole.get_parameter(name).grad
            if gradient is not None:
                values[name] = values[name] - RATE * (gradient * FACTOR)
    totals = {}
    for clock in range(1, CLOCKS + 1):
        found = [losses[worker, clock] for worker in range(WORKERS) if (worker, clock) in losses]
        totals[clock] = sum(found) * WORKERS / len(found)
    return values, totals


BOUNDED = {"mode": "stale", "bound": 1}
FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("mode", "wants"),
    [
        (BOUNDED, 0),
        pytest.param({"mode": "async"}, 2, marks=FULL),
        pytest.param({"mode": "stale", "bound": 0}, 0, marks=FULL),
        pytest.param({"mode": "stale", "bound": 3}, 1, marks=FULL),
    ],
    ids=str,
)
def test_a_replay_of_the_recorded_order_has_the_same_bits(mode: dict[str, Any], wants: int) -> None:
    results = spawn(run, WORKERS + SERVERS, mode, wants)
    workers, servers = results[:WORKERS], results[WORKERS:]
    records = [record for record, *_ in servers]
    values, totals = replay(records, [list(own) for _, _, own, _ in servers])
    for found in [own for _, _, own, _ in servers] + [own for _, own, _ in workers]:
        assert all(torch.equal(torch.from_numpy(value), values[name]) for name, value in found.items())
    assert sorted(name for _, _, own, _ in servers for name in own) == sorted(values)
    assert [known.loss for known in workers[0][2]] == pytest.approx(list(totals.values()), rel=1e-14)
    assert [found for *_, found in workers[1:]] == [[], []]

    everything = [("push", w, c) for w in range(WORKERS) for c in range(1, CLOCKS + 1)]
    everything += [("pull", w, c) for w in range(WORKERS) for c in range(CLOCKS + 1)]
    (meetings,) = {tuple(at) for at, *_ in workers} | {tuple(at) for _, at, *_ in servers}
    assert set(TOGETHER) <= set(meetings)
    assert not wants or min(meetings) in range(wants, TOGETHER[0] + 1)
    for record in records:
        assert sorted(record) == sorted(everything)
        assert furthest_ahead(record, WORKERS) <= mode.get("bound", CLOCKS)
        assert all(met(record, clock, WORKERS) for clock in (0, *meetings))
    assert meetings == tuple(range(1, CLOCKS + 1)) or mode.get("bound") != 0
    assert [peak for *_, peak in servers] == [sum(v.nbytes for v in own.values()) for _, _, own, _ in servers]
