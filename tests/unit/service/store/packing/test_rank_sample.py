"""A sample as it is stored: with the axes of its layout, and what it leaves to the next."""

from typing import Any

import pytest

from shardyard.service.store.packing.rank_sample import row_of, sample_of
from shardyard.service.store.rank_samples import unpack
from shardyard.strategies.layout import Layout
from shardyard.workers.messages.event import RankMetricsEvent, read


def reported(ranks: int, **more: Any) -> RankMetricsEvent:
    same = {name: [0.1] * ranks for name in ("step_s", "busy_s", "wait_s")}
    return read(RankMetricsEvent, {"step": 7, "steps": 3, **same, "memory": [1] * ranks, **more})


def test_a_sample_knows_the_axes_of_its_layout_if_it_is_of_as_many_ranks() -> None:
    layout = Layout(pipeline=2, tensor=2)
    lists = unpack(row_of(1.0, 1, layout, reported(4))["packed"])
    assert list(lists["axes"].items()) == [("pipeline", 2), ("data", 1), ("context", 1), ("tensor", 2)]
    assert lists["parts"] == [0, 0, 1, 1]
    assert "axes" not in unpack(row_of(1.0, 1, layout, reported(2))["packed"])


def test_parameter_servers_have_a_part_of_their_own_and_no_axes() -> None:
    layout = Layout.model_validate({"data": 2, "parameter_server": {"servers": 1}})
    lists = unpack(row_of(1.0, 1, layout, reported(3))["packed"])
    assert lists["parts"] == [0, 0, 1]
    assert "axes" not in lists


def test_lists_of_different_lengths_are_no_sample() -> None:
    with pytest.raises(ValueError, match="lists of"):
        row_of(1.0, 1, Layout(), reported(2, busy_s=[0.1]))
    with pytest.raises(ValueError, match="lists of"):
        row_of(1.0, 1, Layout(), reported(0))


def test_what_a_rank_was_is_left_to_the_next_sample_of_the_same_ranks() -> None:
    def following(*samples: tuple[int, int]) -> list[bool]:
        before, said = None, []
        for position, (attempt, ranks) in enumerate(samples, 1):
            event = reported(ranks, busy_s=[0.1] * (ranks - 1) + [0.2])
            before = row_of(1.0, attempt, Layout(data=4), event, before) | {"position": position}
            said.append(sample_of(before).slow is not None)
        return said

    assert following(*[(1, 4)] * 4) == [False, False, True, True]
    assert following((1, 4), (1, 4), (2, 4), (2, 4), (2, 4)) == [False] * 4 + [True]
    assert following((1, 4), (1, 4), (1, 3), (1, 4), (1, 4), (1, 4)) == [False] * 5 + [True]


def test_a_sample_keeps_how_many_steps_were_measured_if_not_all() -> None:
    def kept(event: RankMetricsEvent) -> int | None:
        return sample_of(row_of(1.0, 1, Layout(data=2), event) | {"position": 1}).timed_steps

    assert kept(reported(2)) is None and kept(reported(2, timed_steps=1)) == 1
