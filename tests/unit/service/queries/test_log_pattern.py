"""Patterns for lines of a log: what they match, and what is said of one that cannot be used."""

import math
from typing import Any

import pytest

from shardyard.service.queries.log_pattern import LogPattern
from shardyard.service.search_errors import InvalidPattern


@pytest.mark.parametrize(
    ("pattern", "line", "matches"),
    [
        ("loss=nan", "step 3 LOSS=NaN", True),
        ("(?-i)loss=nan", "step 3 LOSS=NaN", False),
        (r"^step \d+$", "step 31", True),
        (r"^step \d+$", "a step 31", False),
        ("ä.c", "xÄbc", True),
        (r"rank \[[0-3]\]", "rank [2]", True),
        ("a$", "a\r", False),
    ],
)
def test_what_it_matches(pattern: str, line: str, matches: bool) -> None:
    assert LogPattern(pattern).matches(line) is matches


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("loss **", "'**' at character 6"),
        ("step [z-a]", "'z-a' at character 7"),
        (r"(.)\1", r"'\\1' at character 4"),
        ("a(?=b)", "'(?=' at character 2"),
        ("(step", "missing )"),
        ("a{2000}", "'{2000}' at character 2"),
        ("((a{1,100}){1,100}){1,100}", ""),
        (r"\pN{1,900}", ""),
    ],
)
def test_a_pattern_that_cannot_be_used_is_explained(pattern: str, said: str) -> None:
    with pytest.raises(InvalidPattern) as refused:
        LogPattern(pattern)
    assert said in refused.value.message and refused.value.message.endswith(".")
    assert (refused.value.code, refused.value.field) == ("invalid_pattern", "text") and refused.value.remedy


def test_reading_ends_with_enough_rows_and_with_the_time_and_after_one_row_at_least() -> None:
    rows: list[Any] = [{"text": text} for text in ("a", "b", "ab", "a", "b")]
    pattern = LogPattern("a")
    assert pattern.first(rows, 2, math.inf) == ([rows[0], rows[2]], 3)
    assert pattern.first(rows, 9, math.inf) == ([rows[0], rows[2], rows[3]], 5)
    assert pattern.first(rows, 9, -math.inf) == ([rows[0]], 1)
    assert pattern.first([], 9, math.inf) == ([], 0)
