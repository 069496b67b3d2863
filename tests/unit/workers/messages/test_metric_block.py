"""Blocks of logged values: what is read is what was packed, and what a program prints is understood or left alone."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.workers.messages.metric_block import MetricBlock, checked, columns, packed, printed_blocks


@given(st.integers(1, 5), st.lists(st.integers(0, 2**53 - 1), max_size=6), st.data())
def test_columns_are_what_was_packed(names: int, steps: list[int], data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(), min_size=names * len(steps), max_size=names * len(steps)))
    block = MetricBlock(tuple(f"n{at}" for at in range(names)), tuple(steps), packed(array("d", values)))
    assert checked({"names": list(block.names), "steps": steps, "values": block.values}) == block
    for at, (name, pairs) in enumerate(columns(block)):
        wanted = [value if math.isfinite(value) else None for value in values[at::names]]
        assert (name, pairs) == (f"n{at}", list(zip(steps, wanted, strict=True)))


@pytest.mark.parametrize("values", ["", "AAAA", "????????????", packed(array("d", [1.0, 2.0]))])
def test_values_that_are_not_as_many_as_names_and_steps_are_refused(values: str) -> None:
    with pytest.raises(ValueError, match=r"values|Only|padded|multiple"):
        list(columns(MetricBlock(("a",), (1,), values)))


def test_lines_of_json_are_metrics_wherever_their_key_is() -> None:
    lines = [
        '{"shardyard": {"acc": 0.5, "loss": 2}, "step": 3}',
        '{"step": 4, "epoch": 1, "shardyard" : {"acc": 0.25}}',
        '{"shardyard": {"acc": NaN}, "step": 5}',
    ]
    blocks, unusable = printed_blocks(lines)
    found = [dict(columns(block)) for block in blocks]
    assert found == [{"acc": [(3, 0.5)], "loss": [(3, 2.0)]}, {"acc": [(4, 0.25)]}, {"acc": [(5, None)]}]
    assert unusable is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch 3",
        '{"acc": 1}',
        '{"level": "info", "message": "uses shardyard"}',
        '{"config": {"shardyard": {"acc": 1}}, "step": 3}',
        'step 3 {"shardyard": {"acc": 1}, "step": 9}',
        "{'name': 'shardyard'}",
    ],
)
def test_other_lines_are_left_alone(line: str) -> None:
    assert printed_blocks([line]) == ([], None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"shardyard": {"acc": 1}}', "no step"),
        ('{"shardyard": {"acc": 1}, "step": -1}', "-1 is not a whole number"),
        ('{"shardyard": {"acc": 1}, "step": "3"}', "'3' is not a whole number"),
        ('{"shardyard": 1, "step": 3}', "no object"),
        ('{"shardyard": {"acc": "x"}, "step": 3}', "acc is no number: 'x'"),
        ('{"shardyard": {"acc": null}, "step": 3}', "acc is no number: None"),
        (f'{{"shardyard": {{"acc": 1{"0" * 400}}}, "step": 3}}', "acc is no number"),
        ('{"shardyard": {"": 1}, "step": 3}', "is not a name"),
        ('{"step": 3, "shardyard": {"acc": 1', "not JSON"),
        ("{'shardyard': {'acc': 1}, 'step': 3}", "not JSON"),
        (f'{{"shardyard": {"[" * 100_000}', "not JSON"),
    ],
)
def test_a_line_that_was_meant_as_metrics_has_a_reason(line: str, reason: str) -> None:
    """That of the first such line. Those around it are used."""
    good = '{"shardyard": {"acc": 1}, "step": 3}'
    blocks, unusable = printed_blocks([good, line, '{"shardyard": 2}', good])
    assert len(blocks) == 2
    assert unusable is not None and reason in unusable and unusable.endswith(line[:200])
