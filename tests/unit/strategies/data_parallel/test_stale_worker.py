"""One worker and one server: nothing is stale, whatever the mode, so that each step is plain gradient descent to the bit."""

from typing import Any

import pytest
import torch
from harness.ranks import group, spawn
from torch import nn

from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.data_parallel.stale_messages import Push
from shardyard.strategies.data_parallel.stale_server import StaleServer
from shardyard.strategies.data_parallel.stale_worker import StaleWorker
from shardyard.strategies.layout import Batch, Layout
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions
from shardyard.strategies.mesh import make_mesh
from shardyard.strategies.parallelize import Recipe, parallelize
from shardyard.strategies.precision import PRECISIONS

STEPS, MICROBATCHES, RATE = 3, 2, 0.1


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def rows(step: int, number: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(10 * step + number)
    return torch.randn(3, 4, generator=draw, dtype=torch.float64)


def textbook() -> tuple[dict[str, torch.Tensor], list[float]]:
    """The last values, and the sum of squares of each step's gradient."""
    whole, squares = model(), []
    for step in range(STEPS):
        whole.zero_grad()
        for number in range(MICROBATCHES):
            whole(rows(step, number)).square().sum().backward()
        found = [(value, value.grad) for value in whole.parameters() if value.grad is not None]
        squares.append(sum(grad.square().sum().item() for _, grad in found))
        with torch.no_grad():
            for value, grad in found:
                value.copy_(value - RATE * grad)
    return {name: value.detach() for name, value in whole.named_parameters()}, squares


def descend(server: StaleServer) -> None:
    for shard in server.shards:
        assert shard.gradient is not None
        shard.tensor.sub_(RATE * shard.gradient)


def run(rank: int, world: int, port: int) -> Any:
    layout = Layout.model_validate({"data": 1, "parameter_server": {"servers": 1, "mode": "async"}})
    mesh = make_mesh(layout, group(rank, world, port))
    loss = TokenLoss(1)
    batch = Batch(6, 1, MICROBATCHES, 3)
    recipe = Recipe(model, False, batch, PRECISIONS["fp64"], MemoryOptions(), loss, Overlap(), loss.share)
    parallel = parallelize(recipe, mesh)
    data = parallel.data
    data.publish()
    if isinstance(data, StaleServer):
        for step in range(STEPS):
            data.serve(step + 1, lambda _: descend(data))
        data.settle()
        data.close()
        return {shard.name: shard.tensor.numpy() for shard in data.shards}
    assert isinstance(data, StaleWorker)
    squares = []
    for step in range(STEPS):
        for number in range(MICROBATCHES):
            data.before_backward(last=number == MICROBATCHES - 1)
            parallel.parts[0](rows(step, number)).square().sum().backward()
        data.reduce()
        squares.append(data.square_sum())
        data.push(Push(1.0, float(step), squares[-1], 2.0, False))
        data.pull(meets=False)
        assert data.pushes == step + 1
    data.settle()
    data.close()
    return squares, data.take_totals(), data.clock


@pytest.mark.full
def test_a_lone_worker_has_plain_gradient_descent() -> None:
    (squares, totals, clock), values = spawn(run, 2)
    expected, norms = textbook()
    assert {name: torch.from_numpy(value).tolist() for name, value in values.items()} == {
        name: value.tolist() for name, value in expected.items()
    }
    assert squares == pytest.approx(norms, rel=1e-14)
    assert totals == [(float(step), squares[step], 2.0) for step in range(STEPS)]
    assert clock == STEPS
