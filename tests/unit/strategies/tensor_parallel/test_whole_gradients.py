"""Tensor ranks that hold the same have the same sums of gradients, in whatever order each of them added up its own."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from harness.layouts import GRID
from harness.ranks import group, spawn

from shardyard.strategies.data_strategy import DataStrategy
from shardyard.strategies.layout import Layout
from shardyard.strategies.mesh import (
    REPLICA,
    SHARD,
    SHARD_REPLICA,
    TENSOR_COLUMN,
    TENSOR_ROW,
    Axis,
    Mesh,
    make_mesh,
)
from shardyard.strategies.param_shard import ParamShard
from shardyard.strategies.telemetry.comm_counter import Traffic
from shardyard.strategies.tensor_parallel.whole_gradients import WholeGradients, share_whole_grads

CPU = torch.device("cpu")
HOOKS = dict.fromkeys(("before_backward", "publish", "after_validation", "collect", "settle", "finishing"))
#: Where their exponents differ, the order of three summands decides the last bits.
SUMMANDS = torch.randn(3, 2, 50, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 9.0, 70.0]).view(
    3, 1, 1
)


def shard(name: str, gradient: torch.Tensor, *axes: str) -> ParamShard:
    made = ParamShard(name, tuple(gradient.shape), (0,) * gradient.dim(), torch.zeros_like(gradient), frozenset(axes))
    made.set_gradient(gradient)
    return made


def data_of(shards: Sequence[ParamShard], reduce: Any = lambda: None) -> DataStrategy:
    held = {"shards": list(shards), "all_shards": list(shards)}
    return cast(DataStrategy, SimpleNamespace(**held, reduce=reduce, gradient_peak=7, **HOOKS))


def mesh_of(layout: dict[str, Any], device: torch.device, replicas: int = 3) -> Mesh:
    """Tensor ranks of one replica, as if there were more of them."""
    mesh = make_mesh(Layout.model_validate(layout), device)
    return replace(mesh, axes={**mesh.axes, REPLICA: Axis(replicas, 0, None)})


def _in_two_orders(rank: int, world: int, port: int) -> dict[str, Any]:
    mesh = mesh_of({"tensor": 2}, group(rank, world, port))
    norm, weight = (shard(name, torch.zeros(2, 50), *axes) for name, axes in (("norm", ()), ("weight", ("tensor",))))
    gradient, own = norm.gradient, torch.zeros(0)

    def reduce() -> None:
        nonlocal own
        first, second, third = SUMMANDS if rank == 0 else SUMMANDS.flip(0)
        own = first + second + third
        for one in (norm, weight):
            assert one.gradient is not None
            one.gradient.copy_(own)

    data = share_whole_grads(data_of([norm, weight], reduce), mesh)
    with Traffic({mesh.group("tensor").group_name: "tensor"}) as traffic:
        data.reduce()
    assert norm.gradient is gradient and weight.gradient is not None
    return {
        "own": own.tolist(),
        "norm": norm.gradient.tolist(),
        "weight": weight.gradient.tolist(),
        "sent": traffic.to_json(),
    }


def test_two_orders_of_a_sum_leave_one() -> None:
    first, second = spawn(_in_two_orders, 2)
    assert first["own"] != second["own"]
    assert first["norm"] == second["norm"] == first["own"]
    assert (first["weight"], second["weight"]) == (first["own"], second["own"])
    assert first["sent"] == second["sent"] == {"tensor": {"broadcast": {"calls": 1, "elements": 50, "bytes": 200}}}


def _on_a_grid(rank: int, world: int, port: int) -> list[float]:
    mesh = mesh_of({"tensor": GRID}, group(rank, world, port))
    cuts = [(), (TENSOR_COLUMN,), (TENSOR_ROW,), (TENSOR_ROW, TENSOR_COLUMN)]
    shards = [shard(str(number), torch.full((2,), float(rank)), *axes) for number, axes in enumerate(cuts)]
    share_whole_grads(data_of(shards), mesh).reduce()
    return [one.gradient.mean().item() for one in shards if one.gradient is not None]


def test_each_axis_of_a_grid_sends_what_it_does_not_divide() -> None:
    """Of ranks row · 2 + column: a copy has the sums of rank 0, a column's part those of the first row, a row's of the first column."""
    assert spawn(_on_a_grid, 4) == [[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 2, 2], [0, 1, 2, 3]]


def stand_in(device: str = "cpu", **sizes: int) -> Mesh:
    sizes = {REPLICA: 1, SHARD: 1, SHARD_REPLICA: 1, "tensor": 2, **sizes}
    found = SimpleNamespace(tensor_axes=("tensor",), size=sizes.__getitem__, index=lambda _: 0, group=lambda _: None)
    found.device = torch.device(device)
    return cast(Mesh, found)


@pytest.mark.parametrize(
    ("sizes", "axes", "sends"),
    [
        ({REPLICA: 3}, (), True),
        ({REPLICA: 3}, (REPLICA,), True),
        ({REPLICA: 2}, (), False),
        ({REPLICA: 3, "tensor": 1}, (), False),
        ({REPLICA: 3}, ("tensor",), False),
        ({REPLICA: 4, SHARD: 2, SHARD_REPLICA: 2}, (SHARD,), False),  # two are added up, and then two sums
        ({REPLICA: 4, SHARD: 2, SHARD_REPLICA: 2}, (), True),  # a scalar, which ZeRO-3 does not shard
        ({REPLICA: 8, SHARD: 4, SHARD_REPLICA: 2}, (SHARD,), True),
        ({REPLICA: 8, SHARD: 2, SHARD_REPLICA: 4}, (SHARD,), True),
    ],
)
def test_nothing_is_sent_where_a_sum_has_no_order(sizes: dict[str, int], axes: tuple[str, ...], sends: bool) -> None:
    data = data_of([shard("norm.weight", torch.ones(2), *axes)])
    found = share_whole_grads(data, stand_in(**sizes))
    assert isinstance(found, WholeGradients) == sends
    assert sends or found is data


@pytest.mark.parametrize(
    ("sides", "axes", "sends"),
    [
        ((3, 3), (), True),
        ((3, 3), (TENSOR_COLUMN,), False),  # the ranks of a column are one group
        ((2, 2), (), False),
        ((3, 1), (), False),
    ],
)
def test_a_sum_along_several_lines_has_an_order(sides: tuple[int, int], axes: tuple[str, ...], sends: bool) -> None:
    mesh = stand_in(**dict(zip((TENSOR_ROW, TENSOR_COLUMN), sides, strict=True)))
    mesh.tensor_axes = (TENSOR_ROW, TENSOR_COLUMN)  # type: ignore[misc]
    found = share_whole_grads(data_of([shard("q_norm.weight", torch.ones(2), *axes)]), mesh)
    assert isinstance(found, WholeGradients) == sends


def test_a_gradient_on_the_host_is_sent_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    monkeypatch.setattr(dist, "broadcast", lambda flat, **_: sent.append((flat.device.type, tuple(flat.shape))))
    held = [shard("a", torch.ones(3, 2)), shard("b", torch.ones(4))]
    data = share_whole_grads(data_of(held), stand_in("meta", replica=3))
    data.reduce()
    assert sent == [("meta", (10,))]
    assert all(one.gradient is not None and one.gradient.device == CPU for one in held)


def test_the_largest_gradients_so_far_are_those_of_the_data_strategy() -> None:
    inner = data_of([shard("norm.weight", torch.ones(2))])
    data = share_whole_grads(inner, stand_in(replica=3))
    assert data.gradient_peak == 7
    data.gradient_peak = 0
    assert inner.gradient_peak == 0
