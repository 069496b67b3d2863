"""Layers in chunks of positions equal whole ones, send the same elements, and start to send before they multiply the rest."""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from harness.divided_decoders import linears
from harness.grids import numbers
from harness.ranks import group, spawn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shardyard.strategies.dispatch_mode import DispatchMode, operator_name
from shardyard.strategies.telemetry.comm_counter import Traffic
from shardyard.strategies.tensor_parallel import tensor_axis
from shardyard.strategies.tensor_parallel.functional_collectives import all_gather
from shardyard.strategies.tensor_parallel.linear import ShardedColumns, shard_row
from shardyard.strategies.tensor_parallel.tensor_axis import Axis

BATCH, SEQ, DIM, WIDTHS, INNER = 2, 12, 8, (12, 4), 16


NAMES = {
    "all_gather_into_tensor": "gather",
    "reduce_scatter_tensor": "sum",
    "all_reduce": "sum",
    "wait_tensor": "wait",
    "mm": "multiply",
    "addmm": "multiply",
}


class Recorded(DispatchMode):
    """Notes the order in which messages and products start and are waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = NAMES.get(operator_name(func).rpartition("::")[2])
        self.order += [] if name is None else [name]
        return func(*args, **(kwargs or {}))


def _part(whole: Tensor, mesh: DeviceMesh, dim: int) -> Tensor:
    return whole.detach().chunk(mesh.size(), dim)[mesh.get_local_rank()].clone().requires_grad_()


def _of_rank(layer: nn.Linear, mesh: DeviceMesh, dim: int) -> nn.Linear:
    """The layer with this rank's part of its weight's dim 0 (and bias), or 1."""
    layer.weight = nn.Parameter(_part(layer.weight, mesh, dim))
    if layer.bias is not None and dim == 0:
        layer.bias = nn.Parameter(_part(layer.bias, mesh, dim))
    return layer


def _mesh(rank: int, world: int, port: int) -> DeviceMesh:
    group(rank, world, port)
    return init_device_mesh("cpu", (world,))


def _counted(mesh: DeviceMesh) -> Traffic:
    return Traffic({mesh.get_group().group_name: "tensor"})


def _worst(pairs: Sequence[tuple[Tensor | None, Tensor | None]]) -> float:
    return max((found - expected).abs().max().item() for found, expected in pairs)  # type: ignore[operator]


def _columns(rank: int, world: int, port: int, sequence: bool, chunks: int, biased: bool) -> dict[str, Any]:
    mesh = _mesh(rank, world, port)
    whole = linears(DIM, WIDTHS, (biased,) * 2)
    own = [_of_rank(layer, mesh, 0) for layer in linears(DIM, WIDTHS, (biased,) * 2)]
    x = numbers(BATCH, SEQ, DIM, seed=9).requires_grad_()
    grads = [numbers(BATCH, SEQ, width, seed=20 + width) for width in WIDTHS]
    results = [layer(x) for layer in whole]
    torch.autograd.backward(results, grads)
    y = _part(x, mesh, 1) if sequence else x.detach().clone().requires_grad_()
    with _counted(mesh) as traffic, Recorded() as recorded:
        found = ShardedColumns(mesh, sequence, chunks)(y, own)
    torch.autograd.backward(found, [_part(grad, mesh, 2).detach() for grad in grads])
    assert x.grad is not None
    pairs = [(y.grad, _part(x.grad, mesh, 1) if sequence else x.grad)]
    pairs += [(out, _part(result, mesh, 2)) for out, result in zip(found, results, strict=True)]
    for mine, layer in zip(own, whole, strict=True):
        for name, value in layer.named_parameters():
            pairs.append((mine.get_parameter(name).grad, _part(value.grad, mesh, 0)))  # type: ignore[arg-type]
    return {"worst": _worst(pairs), "order": recorded.order, "traffic": traffic.to_json()}


def _row(rank: int, world: int, port: int, sequence: bool, chunks: int, biased: bool) -> dict[str, Any]:
    mesh = _mesh(rank, world, port)
    (whole,), (own,) = linears(INNER, (DIM,), (biased,)), linears(INNER, (DIM,), (biased,))
    _of_rank(own, mesh, 1)
    x = numbers(BATCH, SEQ, INNER, seed=9).requires_grad_()
    grad = numbers(BATCH, SEQ, DIM, seed=20)
    result = whole(x)
    result.backward(grad)
    y = _part(x, mesh, 2)
    shard_row(own, Axis(mesh, sequence, chunks))
    with _counted(mesh) as traffic, Recorded() as recorded:
        found = own(y)
    with Recorded() as backward:
        found.backward(_part(grad, mesh, 1).detach() if sequence else grad)
    assert x.grad is not None and whole.weight.grad is not None
    pairs = [(found, _part(result, mesh, 1) if sequence else result), (y.grad, _part(x.grad, mesh, 2))]
    pairs.append((own.weight.grad, _part(whole.weight.grad, mesh, 1)))
    return {
        "worst": _worst(pairs),
        "order": recorded.order,
        "backward": backward.order,
        "traffic": traffic.to_json(),
    }


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("sequence", [True, False], ids=["sequence", "whole"])
@pytest.mark.parametrize("layers", [_columns, _row], ids=["columns", "row"])
def test_chunks_equal_whole_layers(layers: Any, sequence: bool, biased: bool) -> None:
    for chunks in (2, 4, 64):  # of 6 positions: even, uneven, and more than there are
        expected, found = (spawn(layers, 2, sequence, count, biased) for count in (1, chunks))
        for one, several in zip(expected, found, strict=True):
            assert one["worst"] < 1e-13 and several["worst"] < 1e-13
            assert _elements(several) == _elements(one)


def _elements(found: dict[str, Any]) -> dict[str, float]:
    return {kind: moved["elements"] for kinds in found["traffic"].values() for kind, moved in kinds.items()}


def test_columns_gather_a_chunk_while_they_multiply_the_one_before() -> None:
    two = ["multiply"] * 2  # layers
    (found, _) = spawn(_columns, 2, True, 3, False)
    assert found["order"] == ["gather", "wait", "gather", *two, "wait", "gather", *two, "wait", *two]


@pytest.mark.parametrize("sequence", [True, False], ids=["sequence", "whole"])
def test_a_row_sends_a_chunk_before_it_multiplies_the_next(sequence: bool) -> None:
    (found, _) = spawn(_row, 2, sequence, 3, False)
    assert found["order"] == ["multiply", "sum"] * 3 + ["wait"] * 3
    in_turn = ["gather", *["wait", "gather", "multiply"] * 2, "wait", "multiply"] if sequence else ["multiply"]
    assert found["backward"] == [*in_turn, "multiply"]  # of the weight, at once


def _held(rank: int, world: int, port: int) -> list[bool]:
    """Whether what a gather sends, a copy of its own, is still there before it is waited for."""
    sent: list[weakref.ref[Tensor]] = []

    def noted(part: Tensor, size: int, name: str) -> Tensor:
        sent.append(weakref.ref(part))
        return all_gather(part, size, name)

    axis = Axis(_mesh(rank, world, port), True)
    tensor_axis.all_gather = noted  # type: ignore[attr-defined]
    waiting = axis.gather(numbers(DIM, SEQ, BATCH).transpose(0, 2))
    gc.collect()
    held = [one() is not None for one in sent]
    waiting()
    return held


def test_what_a_gather_sends_is_kept_until_it_has_arrived() -> None:
    """Nothing says that torch's operator keeps it."""
    assert spawn(_held, 2) == [[True]] * 2


def _halves(rank: int, world: int, port: int) -> list[list[str]]:
    """A row's gradient of its input, and later that of its weight, as a schedule with split backward passes asks for them."""
    mesh = _mesh(rank, world, port)
    (own,) = linears(INNER, (DIM,), (False,))
    _of_rank(own, mesh, 1)
    y = _part(numbers(BATCH, SEQ, INNER, seed=9), mesh, 2)
    grad = _part(numbers(BATCH, SEQ, DIM, seed=20), mesh, 1).detach()
    shard_row(own, Axis(mesh, True, 2))
    out = own(y)
    with Recorded() as first:
        out.backward(grad, retain_graph=True, inputs=[y])
    with Recorded() as second:
        out.backward(grad, inputs=[own.weight])
    return [first.order, second.order]


def test_a_weight_whose_gradient_comes_later_gathers_nothing_again() -> None:
    for first, second in spawn(_halves, 2):
        assert first == ["gather", "wait", "gather", "multiply", "wait", "multiply"]
        assert second == ["multiply"]
