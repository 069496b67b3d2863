"""Durations as users write them."""

import pytest

from shardyard.service.durations import seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("30m", 1800), ("8h", 28_800), ("2d", 172_800), ("1h30m", 5400), ("1.5h", 5400), ("0s", 0)],
)
def test_a_duration(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "8", "h", "8 h", "-8h", "8h ", "8w", "1.h", "8h\n", "٨h"])
def test_other_text_is_none(text: str) -> None:
    assert seconds(text) is None
