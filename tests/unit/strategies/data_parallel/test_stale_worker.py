"""One worker and one server: nothing is stale, whatever the mode, so that each step is plain gradient descent to the bit.

A worker that is slower than another one is waited for.
"""

import time
from typing import Any

import pytest
import torch
from harness.patience import PATIENCE_S
from harness.ranks import group, spawn
from torch import nn

from shardyard.strategies.batch import Batch
from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.data_parallel.stale_messages import Push
from shardyard.strategies.data_parallel.stale_server import StaleServer
from shardyard.strategies.data_parallel.stale_worker import StaleWorker
from shardyard.strategies.layout import Layout
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions
from shardyard.strategies.mesh import make_mesh
from shardyard.strategies.parallelize import Parallel, Recipe, parallelize
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


def begun(rank: int, world: int, port: int, workers: int = 1, limit_s: float = PATIENCE_S) -> Parallel:
    """The model of one of these workers, which has its first values, or of the server."""
    layout = Layout.model_validate({"data": workers, "parameter_server": {"servers": 1, "mode": "async"}})
    mesh = make_mesh(layout, group(rank, world, port, limit_s=limit_s))
    loss = TokenLoss(1)
    batch = Batch(6 * workers, workers, MICROBATCHES, 3)
    recipe = Recipe(model, False, batch, PRECISIONS["fp64"], MemoryOptions(), loss, Overlap(), loss.share)
    parallel = parallelize(recipe, mesh)
    parallel.data.publish()
    return parallel


def run(rank: int, world: int, port: int) -> Any:
    parallel = begun(rank, world, port)
    data = parallel.data
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


#: Seconds after which a collective fails, and by which each of worker 1's steps is longer than those of worker 0.
LIMIT_S, LATE_S = 4.0, 1.2
LATE_STEPS = 5


def late(rank: int, world: int, port: int) -> Any:
    """Whether all ranks met at the end of the last step; of the server for each step."""
    parallel = begun(rank, world, port, 2, LIMIT_S)
    data = parallel.data
    if isinstance(data, StaleServer):
        at = [data.serve(step + 1, lambda _: descend(data)) for step in range(LATE_STEPS)]
        data.settle()
        data.close()
        return at
    assert isinstance(data, StaleWorker)
    for step in range(LATE_STEPS):
        time.sleep(LATE_S * rank)
        data.before_backward(last=True)
        parallel.parts[0](rows(step, 0)).square().sum().backward()
        data.reduce()
        data.push(Push(1.0, 0.0, 0.0, 1.0, False))
        met = data.pull(meets=step + 1 == LATE_STEPS)
    data.settle()
    data.close()
    return met


@pytest.mark.full
def test_a_meeting_waits_longer_than_a_collective_may_take() -> None:
    assert LATE_STEPS * LATE_S > LIMIT_S > 2 * LATE_S
    assert spawn(late, 3) == [True, True, [False] * (LATE_STEPS - 1) + [True]]
