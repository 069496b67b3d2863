"""Three workers and two servers against a loop in one process that shares no code with them: the same bits.

The loop adds the workers' gradients up in the order of their ranks, which is the rule that the servers keep.
"""

from typing import Any

import pytest
import torch
from harness.ranks import group, spawn
from torch import nn

from shardyard.strategies.batch import Batch
from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.data_parallel.parameter_server import Server, Worker, messages
from shardyard.strategies.layout import Layout
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions
from shardyard.strategies.mesh import SERVER, Axis, Mesh, make_mesh
from shardyard.strategies.parallelize import Parallel, Recipe, parallelize
from shardyard.strategies.param_shard import parameters
from shardyard.strategies.precision import PRECISIONS

WORKERS, SERVERS, STEPS, MICROBATCHES, WIDTH = 3, 2, 4, 2, 6
RATE = 0.05
LAYOUT = Layout.model_validate({"data": WORKERS, "parameter_server": {"servers": SERVERS}})


def model() -> nn.Module:
    """Sizes differ, so that servers hold different numbers of parameters; one parameter never has a gradient."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, 9), nn.Tanh(), nn.Linear(9, 4), nn.Tanh(), nn.Linear(4, 1)]
    whole = nn.Sequential(*layers).double()
    whole.register_parameter("idle", nn.Parameter(torch.ones(3, dtype=torch.float64)))
    return whole


def rows(step: int, worker: int, number: int) -> torch.Tensor:
    seed = (step * WORKERS + worker) * MICROBATCHES + number
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def textbook() -> tuple[list[float], dict[str, torch.Tensor]]:
    """Gradient descent with momentum, as it is written: v ← 0.9·v + g, w ← w − rate·v."""
    whole = model()
    speed = {name: torch.zeros_like(value) for name, value in whole.named_parameters()}
    losses = []
    for step in range(STEPS):
        total: dict[str, torch.Tensor] = {}
        loss_sum = 0.0
        for worker in range(WORKERS):
            whole.zero_grad()
            for number in range(MICROBATCHES):
                loss = whole(rows(step, worker, number)).square().sum()
                loss.backward()
                loss_sum += loss.item()
            for name, value in whole.named_parameters():
                grad = torch.zeros_like(value) if value.grad is None else value.grad.clone()
                total[name] = total[name] + grad if name in total else grad
        with torch.no_grad():
            for name, value in whole.named_parameters():
                speed[name] = 0.9 * speed[name] + total[name]
                value.copy_(value - RATE * speed[name])
        losses.append(loss_sum)
    return losses, {name: value.detach() for name, value in whole.named_parameters()}


def made(mesh: Mesh, overlap: Overlap) -> Parallel:
    loss = TokenLoss(1)
    batch = Batch(WORKERS * MICROBATCHES * 5, WORKERS, MICROBATCHES, 5)
    return parallelize(
        Recipe(model, False, batch, PRECISIONS["fp64"], MemoryOptions(), loss, overlap, loss.share), mesh
    )


def train(rank: int, world: int, port: int, bucket_mb: float) -> Any:
    mesh = make_mesh(LAYOUT, group(rank, world, port))
    parallel = made(mesh, Overlap(bucket_mb=bucket_mb, prefetch=1))
    data, losses = parallel.data, []
    if not mesh.serves:
        with torch.no_grad():
            for value in parallel.parts[0].parameters():
                value.fill_(torch.nan)  # what a worker computes with, it has from the servers
    data.publish()
    speed = [torch.zeros_like(shard.tensor) for shard in data.shards]
    for step in range(STEPS):
        loss_sum = 0.0
        for number in range(MICROBATCHES * (not mesh.serves)):
            data.before_backward(number == MICROBATCHES - 1)
            loss = parallel.parts[0](rows(step, rank, number)).square().sum()
            loss.backward()
            loss_sum += loss.item()
        data.reduce()
        with torch.no_grad():
            for shard, v in zip(data.shards, speed, strict=True):
                assert shard.gradient is not None
                v.mul_(0.9).add_(shard.gradient)
                shard.tensor.sub_(RATE * v)
        data.publish()
        losses.append(loss_sum)
    data.settle()
    own = [value for part in parallel.parts for value in part.named_parameters()]
    values = dict(own) or {shard.name: shard.tensor for shard in data.shards}
    return losses, {name: value.detach().numpy() for name, value in values.items()}, data.gradient_peak


@pytest.mark.parametrize("bucket_mb", [1e-5, pytest.param(8, marks=pytest.mark.full)])
def test_the_bits_are_those_of_one_process(bucket_mb: float) -> None:
    """With a message per parameter, and with one per server."""
    results = spawn(train, WORKERS + SERVERS, bucket_mb)
    losses, values = textbook()
    assert [sum(step) for step in zip(*(result[0] for result in results[:WORKERS]), strict=True)] == pytest.approx(
        losses, rel=1e-14
    )
    for _, found, _ in results[:WORKERS]:
        assert found.keys() == values.keys()
        assert all(torch.equal(torch.from_numpy(found[name]), value) for name, value in values.items())
    on_servers = [found for _, found, _ in results[WORKERS:]]
    assert sorted(name for found in on_servers for name in found) == sorted(values)
    held = [8 * sum(value.size for value in found.values()) for found in on_servers]
    assert [peak for _, _, peak in results[WORKERS:]] == held


def mesh_of(rank: int) -> Mesh:
    alone = {axis: Axis(1, 0, None) for axis in ("replica", "pipeline", "expert", "tensor")}
    return Mesh(LAYOUT, torch.device("cpu"), {SERVER: Axis(WORKERS + SERVERS, rank, None), **alone}, {})


def test_every_rank_has_the_same_messages_in_the_order_of_the_backward_pass() -> None:
    mesh, found = mesh_of(0), parameters([model()], mesh_of(0))
    sent = messages(found, mesh, 8, 100)
    names = [parameter.name for message in sent for parameter in message.parameters]
    assert sorted(names) == sorted(p.name for p in found)
    assert {message.server for message in sent} == {WORKERS, WORKERS + 1}
    backward = [p.name for p in reversed(found)]
    last = [max(backward.index(p.name) for p in message.parameters) for message in sent]
    assert last == sorted(last)
    sizes = [sum(p.local.nbytes for p in message.parameters) for message in sent if len(message.parameters) > 1]
    assert sizes
    assert max(sizes) <= 100


def test_a_server_has_a_part_of_its_own_and_is_alone_on_every_other_axis() -> None:
    assert [mesh_of(rank).serves for rank in range(5)] == [False] * 3 + [True] * 2
    assert [mesh_of(rank).part for rank in (3, 4)] == [1, 1]
    assert [LAYOUT.part(rank) for rank in range(5)] == [0, 0, 0, 1, 1]


def one_of_each(rank: int, world: int, port: int) -> tuple[str, int, bool]:
    mesh = make_mesh(Layout.model_validate({"data": 1, "parameter_server": {"servers": 1}}), group(rank, world, port))
    parallel = made(mesh, Overlap())
    data = parallel.data
    assert isinstance(data, Server if rank else Worker)
    return type(data).__name__, len(data.shards), all(shard.owned(mesh) for shard in data.shards)


@pytest.mark.full
def test_only_servers_have_shards_and_own_them() -> None:
    assert spawn(one_of_each, 2) == [("Worker", 0, True), ("Server", 7, True)]
