"""The parts of the context axis count every rank once, and key/value heads are copied as often as is needed."""

import itertools

import pytest

from shardyard.strategies.context_axes import context_axes, key_copies, place_on, windows
from shardyard.strategies.layout import Layout

RINGS = [
    Layout(context=8, ulysses=2),
    Layout(context=8, ulysses=2, context_inner="ring"),
    Layout(context=16, ulysses=2, ring_window=4),
    Layout(context=16, ulysses=2, ring_window=4, context_inner="ring"),
]


@pytest.mark.parametrize("layout", RINGS, ids=str)
def test_coordinates_times_strides_number_every_rank_once(layout: Layout) -> None:
    axes = list(context_axes(layout).values())
    places = itertools.product(*(range(size) for size, _ in axes))
    numbers = [sum(at * stride for at, (_, stride) in zip(place, axes, strict=True)) for place in places]
    assert sorted(numbers) == list(range(layout.context))


@pytest.mark.parametrize("layout", RINGS, ids=str)
def test_a_place_is_that_of_the_axes(layout: Layout) -> None:
    strides = context_axes(layout)
    for index in range(layout.context):
        ring, ulysses = place_on(layout, index)
        inner, outer = divmod(ring, layout.ring_window)[::-1] if layout.ring_window else (ring, 0)
        found = strides["ulysses"][1] * ulysses
        found += strides.get("ring", strides.get("inner_ring", (0, 0)))[1] * inner
        found += strides.get("outer_ring", (0, 0))[1] * outer
        assert found == index


def test_windows_divide_a_ring() -> None:
    assert [windows(layout) for layout in RINGS] == [1, 1, 2, 2]


def test_key_heads_are_copied_where_ulysses_does_not_divide_them() -> None:
    assert [key_copies(Layout(context=u, ulysses=u), 6) for u in (1, 2, 3, 4, 12)] == [1, 1, 1, 2, 2]
    assert key_copies(Layout(context=2, ulysses=2, tensor=2), 2) == 2
