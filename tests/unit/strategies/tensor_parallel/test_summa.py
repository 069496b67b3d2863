"""Products in blocks equal products of whole matrices, whatever the grid divides evenly, and send what the paper's table says."""

import math
from typing import Any

import pytest
from harness.grids import block, counted, grid, numbers
from harness.ranks import spawn

from shardyard.strategies.tensor_parallel.summa import product, product_of_transposed, product_with_transposed

#: (m, k, n) of A·B: evenly divided, with unequal parts, with an empty one, with a single number.
SIZES = [(12, 24, 36), (7, 11, 5), (4, 4, 1), (1, 1, 1)]


def _compare(rank: int, world: int, port: int) -> list[tuple[str, float]]:
    on = grid(rank, world, port)
    found = []
    for m, k, n in SIZES:
        a, b, c = numbers(m, k), numbers(k, n, seed=1), numbers(m, n, seed=2)
        cases = {
            "a·b": (product(block(a, on), block(b, on), k, on), a @ b),
            "c·bᵀ": (product_with_transposed(block(c, on), block(b, on), k, on), c @ b.t()),
            "aᵀ·c": (product_of_transposed(block(a, on), block(c, on), k, on), a.t() @ c),
        }
        for name, (own, whole) in cases.items():
            expected = block(whole, on)
            assert own.shape == expected.shape, (name, m, k, n)
            found.append((f"{name} {m} {k} {n}", (own - expected).abs().max().item() if own.numel() else 0.0))
    return found


@pytest.mark.parametrize("world", [1, 4, 9])
def test_products_equal_those_of_whole_matrices(world: int) -> None:
    for found in spawn(_compare, world):
        assert len(found) == 3 * len(SIZES)
        for case, difference in found:
            assert difference < 1e-13, case


def _count(rank: int, world: int, port: int) -> dict[str, dict[str, float]]:
    on = grid(rank, world, port)
    m, k, n = SIZES[0]
    a, b, c = (block(numbers(*shape), on) for shape in ((m, k), (k, n), (m, n)))
    calls: dict[str, Any] = {
        "a·b": lambda: product(a, b, k, on),
        "c·bᵀ": lambda: product_with_transposed(c, b, k, on),
        "aᵀ·c": lambda: product_of_transposed(a, c, k, on),
    }
    found = {}
    for name, call in calls.items():
        with counted(on) as traffic:
            call()
        plain = traffic.to_json()
        found[name] = {
            f"{axis} {kind}": moved["elements"] for axis, kinds in plain.items() for kind, moved in kinds.items()
        }
    return found


@pytest.mark.parametrize("world", [4, 9])
def test_traffic_is_two_of_the_three_matrices_over_the_grid(world: int) -> None:
    m, k, n = SIZES[0]
    share = (math.isqrt(world) - 1) / world
    for found in spawn(_count, world):
        assert found == {
            "a·b": {"row broadcast": pytest.approx(share * m * k), "column broadcast": pytest.approx(share * k * n)},
            "c·bᵀ": {"column broadcast": pytest.approx(share * k * n), "row reduce": pytest.approx(share * m * k)},
            "aᵀ·c": {"row broadcast": pytest.approx(share * m * k), "column reduce": pytest.approx(share * k * n)},
        }
