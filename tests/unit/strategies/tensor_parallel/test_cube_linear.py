"""Linear layers over a cube equal whole ones, both ways, forward and backward; they keep an eighth and send what the formula says."""

import functools
import itertools
from typing import Any

import torch
from harness.cubes import counted, cube, elements, of_way, part, weight_of
from harness.divided_decoders import linears
from harness.grids import numbers
from harness.ranks import spawn
from torch import Tensor

from shardyard.strategies.tensor_parallel.cube import Cube, Way, cut_over
from shardyard.strategies.tensor_parallel.cube_linear import CubeColumns

BATCH, SEQ, INNER, WIDTHS = 4, 3, 8, (12, 4)


def _numbers_kept(kept: list[int], saved: Tensor) -> Tensor:
    kept.append(saved.numel())
    return saved


#: Which layers have a bias → how many.
BIASES = {(False, False): 0, (True, False): 1, (True, True): 2}


def _compare_all(rank: int, world: int, port: int) -> list[tuple[int, dict[str, Any]]]:
    on = cube(rank, world, port)
    return [(count, _compare(on, way, biased)) for way in (on.into, on.out_of) for biased, count in BIASES.items()]


def _compare(on: Cube, way: Way, biased: tuple[bool, ...]) -> dict[str, Any]:
    whole, own = linears(INNER, WIDTHS, biased), linears(INNER, WIDTHS, biased)
    for layer in own:
        cut_over(layer, "weight", [(way.gathered, 0), (way.summed, 1), (on.depth, 0)])
        if layer.bias is not None:
            cut_over(layer, "bias", [(way.gathered, 0)])
    x = numbers(BATCH, SEQ, INNER, seed=9).requires_grad_()
    y = of_way(x.detach(), on, way).requires_grad_()
    grads = [numbers(BATCH, SEQ, width, seed=20 + width) for width in WIDTHS]
    torch.autograd.backward([layer(x) for layer in whole], grads)
    kept: list[int] = []
    hooks = torch.autograd.graph.saved_tensors_hooks(functools.partial(_numbers_kept, kept), lambda saved: saved)
    with counted(on) as traffic, hooks:
        outputs = CubeColumns(on, way)(y, own)
    forward = elements(traffic)
    with counted(on) as traffic:
        torch.autograd.backward(outputs, [of_way(grad, on, way, outputs=True) for grad in grads])
    assert x.grad is not None and y.grad is not None
    pairs = [(y.grad, of_way(x.grad, on, way))]
    pairs += [(out, of_way(layer(x), on, way, outputs=True)) for out, layer in zip(outputs, whole, strict=True)]
    for mine, layer in zip(own, whole, strict=True):
        assert mine.weight.grad is not None and layer.weight.grad is not None
        pairs.append((mine.weight.grad, weight_of(layer.weight.grad, on, way)))
        if layer.bias is not None:
            assert mine.bias.grad is not None and layer.bias.grad is not None
            pairs.append((mine.bias.grad, part(layer.bias.grad, [(way.gathered, 0)])))
    worst = max((found - expected).abs().max().item() for found, expected in pairs)
    return {"worst": worst, "pairs": len(pairs), "kept": kept, "forward": forward, "backward": elements(traffic)}


def test_layers_of_one_input_equal_whole_ones_and_send_what_the_formula_says() -> None:
    tokens, out = BATCH * SEQ, sum(WIDTHS)
    for biases, found in itertools.chain.from_iterable(spawn(_compare_all, 8)):
        assert found["pairs"] == 5 + biases
        assert found["worst"] < 1e-13
        assert found["kept"] == [tokens * INNER // 8, *(width * INNER // 8 for width in WIDTHS)]
        assert found["forward"] == (tokens * INNER + INNER * out + tokens * out) / 8
        # A bias' gradient is two all-reduces for the whole group of layers.
        of_biases = 2 * out / 2 if biases else 0
        assert found["backward"] == 2 * found["forward"] - tokens * out / 8 + of_biases
