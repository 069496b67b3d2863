"""Linear layers over a grid equal whole ones, forward and backward, and keep a share of their input."""

import functools
from typing import Any

import torch
from harness.divided_decoders import linears
from harness.grids import block, counted, grid, numbers
from harness.ranks import spawn
from torch import Tensor

from shardyard.strategies.tensor_parallel.grid import cut
from shardyard.strategies.tensor_parallel.grid_linear import GridColumns

BATCH, SEQ, INNER, WIDTHS = 4, 3, 8, (12, 4)


def _bytes(kept: list[int], saved: Tensor) -> Tensor:
    kept.append(saved.numel())
    return saved


def _compare(rank: int, world: int, port: int, biased: tuple[bool, ...]) -> dict[str, Any]:
    on = grid(rank, world, port)
    whole, own = linears(INNER, WIDTHS, biased), linears(INNER, WIDTHS, biased)
    for layer in own:
        cut(layer, "weight", on, rows=1, columns=0)
        if layer.bias is not None:
            cut(layer, "bias", on, columns=0)
    x = numbers(BATCH, SEQ, INNER, seed=9).requires_grad_()
    y = block(x.detach(), on, rows=0, columns=2).requires_grad_()
    grads = [numbers(BATCH, SEQ, width, seed=20 + width) for width in WIDTHS]
    torch.autograd.backward([layer(x) for layer in whole], grads)
    kept: list[int] = []
    with counted(on) as traffic, torch.autograd.graph.saved_tensors_hooks(functools.partial(_bytes, kept), lambda t: t):
        outputs = GridColumns(on)(y, own)
    forward = _elements(traffic)
    with counted(on) as traffic:
        torch.autograd.backward(outputs, [block(grad, on, rows=0, columns=2) for grad in grads])
    assert x.grad is not None and y.grad is not None
    pairs = [(y.grad, block(x.grad, on, rows=0, columns=2))]
    pairs += [(out, block(layer(x), on, rows=0, columns=2)) for out, layer in zip(outputs, whole, strict=True)]
    for mine, layer in zip(own, whole, strict=True):
        assert mine.weight.grad is not None and layer.weight.grad is not None
        pairs.append((mine.weight.grad, block(layer.weight.grad, on, rows=1, columns=0)))
        if layer.bias is not None:
            pairs.append((mine.bias.grad, block(layer.bias.grad, on, rows=None, columns=0)))  # type: ignore[arg-type]
    worst = max((found - expected).abs().max().item() for found, expected in pairs)
    return {"worst": worst, "pairs": len(pairs), "kept": kept, "forward": forward, "backward": _elements(traffic)}


def _elements(traffic: Any) -> float:
    return sum(moved["elements"] for kinds in traffic.to_json().values() for moved in kinds.values())


def test_layers_of_one_input_equal_whole_ones_and_send_what_the_formula_says() -> None:
    tokens, out = BATCH * SEQ, sum(WIDTHS)
    for biased, biases in (((False, False), 0), ((True, False), 1), ((True, True), 2)):
        for found in spawn(_compare, 4, biased):
            assert found["pairs"] == 5 + biases
            assert found["worst"] < 1e-13
            assert found["kept"] == [tokens * INNER // 4, *(width * INNER // 4 for width in WIDTHS)]
            assert found["forward"] == (tokens * INNER + INNER * out) / 4
            # A bias' gradient is one all-reduce for the whole group of layers.
            assert found["backward"] == 2 * found["forward"] + (2 * out / 4 if biases else 0)
