"""Numbers, times and other people's text as they are shown."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.markup import escape

from shardyard.api.cli.terminal.screen import Screen, age, loss, number, seconds
from shardyard.service.schemas.problem import FieldError


@pytest.mark.parametrize(
    ("value", "shown"), [(0.84, "0.8 s"), (42.2, "42 s"), (200, "3:20"), (7400, "2:03:20"), (None, None)]
)
def test_seconds(value: float | None, shown: str | None) -> None:
    assert seconds(value) == shown


def test_numbers() -> None:
    assert (number(1234567.2), number(None)) == ("1,234,567", None)
    assert (loss(2.5), loss(None)) == ("2.5000 nats/token", None)


def test_age_has_one_unit() -> None:
    past = [age(datetime.now(UTC) - timedelta(seconds=value)) for value in (5, 125, 7300, 200_000)]
    assert past == ["5s", "2m", "2h", "2d"]
    assert age(None) == ""


def test_a_log_line_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().line("\x1b[2Jgone\x07\r\tkept ü \x9b1m")
    assert capsys.readouterr().out == "[2Jgone\tkept ü 1m\n"


def test_an_error_names_field_and_remedy_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().error("It is [wrong].", [FieldError(field="a[0]", message="Bad [x].", remedy="Use [y].")])
    told = capsys.readouterr().err
    assert told.splitlines() == ["error: It is [wrong].", "  a[0]: Bad [x].", "  → Use [y]."]


def test_a_pipe_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().table(("A", "B"), [("x" * 300, "[red]y[/]")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["x" * 300, "y"]


HOSTILE = "a\x1b[2J\x1b]0;title\x07b\r\nc\u202ed\u2028e :x:"
TAMED = "a[2J]0;titlebcde :x:"


def test_no_cell_fact_or_message_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.table(("A", HOSTILE.replace("[", "(")), [(escape(HOSTILE), "y")])
    screen.facts(HOSTILE, [(HOSTILE, HOSTILE)])
    told = capsys.readouterr().out
    assert told.splitlines()[1].split("  ")[0] == TAMED
    assert [line.strip() for line in told.splitlines()[2:]] == [TAMED, f"{TAMED}  {TAMED}"]
    for say in (screen.say, screen.hint, screen.error, lambda text: screen.out.print(escape(text))):
        say(HOSTILE)
    screen.error("x", [FieldError(field=HOSTILE, message=HOSTILE, remedy=HOSTILE)])
    printed = "".join(capsys.readouterr())
    assert not {"\x1b", "\x07", "\r", "\u202e", "\u2028"} & {*told, *printed}
    assert ":x:" in printed
