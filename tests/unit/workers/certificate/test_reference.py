"""The one process rounds what each rank would round, and takes gradients at the weights that a delay says; it leaves its weights alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from harness.quantised import reduced, rounded
from torch import Tensor, nn

from shardyard.strategies.batch import Batch
from shardyard.strategies.layout import Layout
from shardyard.strategies.param_shard import Parameter
from shardyard.strategies.runner import Runner
from shardyard.workers.certificate.reference import Late, Rounding

SIZE = 40


class Products(Runner):
    """The loss Σ w · x, whose gradient of w is the sum of the rows x. It keeps the weights at which it was taken."""

    last = True

    def __init__(self, weight: nn.Parameter) -> None:
        self._weight, self.seen = weight, list[Tensor]()

    def train(self, inputs: Any, targets: Tensor) -> Tensor:
        loss = self.validate(inputs, targets)
        loss.backward()
        return loss.detach()

    def validate(self, inputs: Any, targets: Tensor) -> Tensor:
        self.seen.append(self._weight.detach().clone())
        return (inputs * self._weight.flatten()).sum()


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))


def rows(count: int) -> Tensor:
    return torch.randn(count, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def rounding(value: nn.Parameter, layout: dict[str, Any], batch: Batch) -> tuple[Rounding, Products]:
    inner = Products(value)
    weights = [Parameter("w", value, (), tuple(value.shape))]
    return Rounding(inner, weights, Layout.model_validate(layout), batch, tied=False), inner


def by_shards(values: list[Any], ranks: int, change: Callable[[list[Any]], Any]) -> Any:
    """`change` for the halves of values of an even number of rows."""
    parts = [np.split(value, ranks) for value in values]
    return np.concatenate([change([part[rank] for part in parts]) for rank in range(ranks)])


@pytest.mark.parametrize("zero", [1, 2])
def test_gradients_are_those_that_ranks_receive(zero: int) -> None:
    value, inputs = weight(SIZE), rows(8)
    layout = {"data": 2, "zero": zero, "zero_plus_plus": {"gradients": "int4", "block": 32}}
    runner, inner = rounding(value, layout, Batch(8, 2, 2, 2))
    loss = runner.train(inputs, torch.zeros(8))
    # Row (micro-batch · 2 + rank) · 2 + i.
    by_pass = [[inputs[(2 * number + rank) * 2 :][:2].sum(0).numpy() for rank in (0, 1)] for number in (0, 1)]
    exchanges = by_pass if zero == 2 else [[by_pass[0][rank] + by_pass[1][rank] for rank in (0, 1)]]
    expected = sum(by_shards(each, 2, lambda parts: reduced(parts, [20], 32, 4, None)) for each in exchanges)
    assert value.grad is not None
    np.testing.assert_allclose(value.grad.numpy(), expected, rtol=0, atol=1e-13)
    assert loss.item() == pytest.approx((inputs * value).sum().item(), rel=1e-12)
    assert all(torch.equal(seen, value) for seen in inner.seen)


def test_weights_are_rounded_for_both_passes_and_kept_for_the_update() -> None:
    value = weight(10, 4)
    before = value.detach().clone()
    layout = {"data": 2, "zero": 3, "zero_plus_plus": {"weights": "int8", "block": 32}}
    runner, inner = rounding(value, layout, Batch(4, 2, 1, 2))
    runner.train(rows(4), torch.zeros(4))
    with torch.no_grad():
        runner.validate(rows(4), torch.zeros(4))
    flat = before.numpy()
    expected = by_shards([flat], 2, lambda parts: rounded(parts[0].reshape(-1), [20], 32, 8).reshape(-1, 4))
    assert len(inner.seen) == 3
    for seen in inner.seen:
        np.testing.assert_array_equal(seen.numpy(), expected)
        assert not torch.equal(seen, before)
    assert torch.equal(value, before)


@pytest.mark.parametrize(
    ("columns", "more", "dim"), [(32, {}, 1), (33, {}, 0), (32, {"tensor": 2}, 0)], ids=["even", "uneven", "tensor"]
)
def test_a_matrix_of_fewer_rows_than_ranks_is_rounded_by_columns(columns: int, more: dict[str, int], dim: int) -> None:
    """If their number divides evenly, and there are no tensor ranks. Else each of the first two of four ranks has a row."""
    value = weight(2, columns)
    before = value.detach().numpy().copy()
    inputs = torch.randn(8, 2 * columns, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    layout = {"data": 4, "zero": 3, "zero_plus_plus": {"weights": "int8", "gradients": "int4", "block": 32}, **more}
    runner, inner = rounding(value, layout, Batch(8, 4, 1, 2))
    runner.train(inputs, torch.zeros(8))
    of_ranks = [inputs[2 * rank :][:2].sum(0).numpy().reshape(2, columns) for rank in range(4)]

    def by_rank(change: Callable[[list[Any]], Any], values: list[Any]) -> Any:
        pieces = zip(*(np.split(one, 4 if dim else 2, dim) for one in values), strict=True)
        found = [change([one.flatten() for one in piece]).reshape(piece[0].shape) for piece in pieces]
        return np.concatenate(found, dim)

    sizes = [2 * columns // 4 if dim else columns]
    weights = by_rank(lambda found: rounded(found[0], sizes, 32, 8), [before])
    assert len(inner.seen) == 4 and all(np.array_equal(seen.numpy(), weights) for seen in inner.seen)
    assert value.grad is not None
    gradients = by_rank(lambda found: reduced(found, sizes, 32, 4, None), of_ranks)
    np.testing.assert_allclose(value.grad.numpy(), gradients, rtol=0, atol=1e-13)


def test_frozen_weights_are_rounded_too() -> None:
    value, other = weight(10, 4), weight(SIZE)
    value.requires_grad_(False)
    before = value.detach().clone()

    class Both(Products):
        def validate(self, inputs: Any, targets: Tensor) -> Tensor:
            return super().validate(inputs, targets) + (inputs * other).sum()

    inner = Both(value)
    weights = [Parameter("frozen", value, (), (10, 4)), Parameter("w", other, (), (SIZE,))]
    layout = Layout.model_validate({"data": 2, "zero": 3, "zero_plus_plus": {"weights": "int8", "block": 32}})
    runner = Rounding(inner, weights, layout, Batch(4, 2, 1, 2), tied=False)
    inputs = rows(4)
    runner.train(inputs, torch.zeros(4))
    runner.validate(inputs, torch.zeros(4))
    expected = by_shards([before.numpy()], 2, lambda parts: rounded(parts[0].reshape(-1), [20], 32, 8).reshape(-1, 4))
    assert len(inner.seen) == 3 and all(np.array_equal(seen.numpy(), expected) for seen in inner.seen)
    assert torch.equal(value, before) and value.grad is None
    assert other.grad is not None and torch.allclose(other.grad, inputs.sum(0), rtol=0, atol=1e-13)


def test_gradients_are_taken_as_many_updates_late_as_each_parameter_says() -> None:
    values = [nn.Parameter(torch.zeros(SIZE, dtype=torch.float64)) for _ in range(3)]
    runners = [Products(value) for value in values]

    class All(Runner):
        last = True

        def train(self, inputs: Any, targets: Tensor) -> Tensor:
            return torch.stack([one.train(inputs, targets) for one in runners]).sum()

        def validate(self, inputs: Any, targets: Tensor) -> Tensor:
            return torch.stack([one.validate(inputs, targets) for one in runners]).sum()

    late = Late(All(), [Parameter(str(at), value, (), (SIZE,)) for at, value in enumerate(values)], [2, 0, 1])
    for step in range(1, 6):
        late.train(rows(2), torch.zeros(2))
        with torch.no_grad():
            for value in values:
                value.fill_(step)  # the update
    found = [[seen[0].item() for seen in runner.seen] for runner in runners]
    assert found == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3]]
    late.validate(rows(2), torch.zeros(2))
    assert [runner.seen[-1][0].item() for runner in runners] == [5, 5, 5]
