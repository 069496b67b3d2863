"""Progress as text: what a pipe's lines say."""

import io
from typing import Any

import pytest
from rich.console import Console

from shardyard.api.cli.terminal.progress import Lines, Pace


def step(number: int, **more: Any) -> dict[str, Any]:
    return {"step": number, "loss": 1.5, "tokens_per_s": 41200.4, "step_s": 2.0, **more}


def test_pace_says_loss_speed_and_time_left() -> None:
    assert Pace(110).text(step(10)) == "loss 1.5000 · 41,200 tokens/s · 3:20 left"


@pytest.mark.parametrize(("steps", "left"), [(26, "32 s"), (50_010, "27:46:40")])
def test_the_time_left_has_its_unit_or_its_hours(steps: int, left: str) -> None:
    assert Pace(steps).text(step(10)).endswith(f" · {left} left")


def test_pace_without_numbers_says_nothing_of_them() -> None:
    assert Pace(10).text({"step": 1, "loss": None}) == ""


def test_one_slow_step_does_not_change_the_time_left() -> None:
    pace = Pace(100)
    for number in range(1, 10):
        pace.text(step(number))
    assert pace.text(step(10, step_s=500.0)).endswith("3:00 left")


def test_lines_come_every_few_seconds_and_at_the_end() -> None:
    printed = io.StringIO()
    lines = Lines(Console(file=printed), 50, every_s=60)
    lines.note("[not\x1b[2J markup]")
    for number in range(1, 51):
        lines.step(step(number))
    shown = printed.getvalue().splitlines()
    assert [line.split(" · ")[0] for line in shown] == ["[not[2J markup]", "step 1/50", "step 50/50"]
    assert "\x1b" not in printed.getvalue()
