"""Positions of a sequence that is cut over ranks, and bidirectional attention over them."""

from typing import Any

import pytest
import torch
from harness.attentions import worst_differences
from hypothesis import given
from hypothesis import strategies as st

from shardyard.strategies.context_parallel.apply import positions_of
from shardyard.strategies.layout import Layout


@given(
    ring=st.integers(1, 4),
    ulysses=st.integers(1, 4),
    length=st.integers(1, 3),
    inner=st.sampled_from(["ulysses", "ring"]),
)
def test_positions_are_cut_without_rest(ring: int, ulysses: int, length: int, inner: str) -> None:
    layout = Layout.model_validate({"context": ring * ulysses, "ulysses": ulysses, "context_inner": inner})
    sequence = 2 * ring * ulysses * length
    parts = [positions_of(layout, index, sequence) for index in range(layout.context)]
    assert {len(part) for part in parts} == {sequence // layout.context}
    assert sorted(torch.cat(parts).tolist()) == list(range(sequence))


def test_a_ring_gives_everyone_an_early_and_a_late_chunk() -> None:
    layout = Layout(context=4, ulysses=2)
    parts = [positions_of(layout, index, 8).tolist() for index in range(4)]
    assert parts == [[0, 1], [6, 7], [2, 3], [4, 5]]
    inside = Layout(context=4, ulysses=2, context_inner="ring")
    assert [positions_of(inside, index, 8).tolist() for index in range(4)] == [[0, 1], [2, 3], [6, 7], [4, 5]]


#: Every method, and Ulysses with a ring in either order.
METHODS: list[dict[str, Any]] = [
    {},
    {"context_method": "all-gather"},
    {"context_method": "ring-self-attention"},
    {"ring_window": 2},
    {"ulysses": 4},
    {"ulysses": 2},
    {"ulysses": 2, "context_inner": "ring"},
]


@pytest.mark.parametrize(
    ("world", "methods"),
    [(2, [{}, METHODS[1], METHODS[2], {"ulysses": 2}]), pytest.param(4, METHODS, marks=pytest.mark.full)],
)
def test_every_method_keeps_packed_documents_apart(world: int, methods: list[dict[str, Any]]) -> None:
    cases = [
        {"layout": layout, "kv_heads": heads, "kernel": "MATH", "packed": True}
        for layout in methods
        for heads in (4, 2)
    ]
    for case, differences in zip(cases, worst_differences(world, cases), strict=True):
        assert max(differences) < 1e-14, case


@pytest.mark.parametrize("packed", [False, True])
def test_every_method_is_exact_without_a_causal_mask(packed: bool) -> None:
    common = {"kv_heads": 2, "kernel": "CPU_FLASH", "causal": False, "packed": packed}
    cases = [{"layout": layout, **common} for layout in METHODS]
    for case, differences in zip(cases, worst_differences(4, cases), strict=True):
        assert max(differences) < 1e-14, case
