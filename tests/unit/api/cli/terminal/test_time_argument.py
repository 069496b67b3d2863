"""Moments as people type them."""

from datetime import UTC, datetime

import pytest
import typer

from shardyard.api.cli.terminal.time_argument import parse_time

NOW = datetime(2026, 1, 31, 15, 0, 0).timestamp()  # local


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", NOW - 600),
        ("1.5h", NOW - 5400),
        ("2d", NOW - 2 * 86400),
        ("14:30", NOW - 1800),
        ("9:05:30", datetime(2026, 1, 31, 9, 5, 30).timestamp()),
        ("2026-01-30", datetime(2026, 1, 30).timestamp()),
        ("2026-01-30T12:00", datetime(2026, 1, 30, 12).timestamp()),
        ("2026-01-30T12:00:00+00:00", datetime(2026, 1, 30, 12, tzinfo=UTC).timestamp()),
        ("1700000000.5", 1700000000.5),
        ("9000000000d", 0.0),
    ],
)
def test_a_moment(text: str, expected: float) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "10", "25:00", "2026-13-01", "-5m"])
def test_what_is_no_moment_says_how(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="10m"):
        parse_time(text, NOW)
