"""Numbers, times and other people's text as they are shown."""

import re
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from shardyard.api.cli.terminal import screen
from shardyard.api.cli.terminal.screen import Screen, age, logged, loss, number, seconds
from shardyard.service.schemas.problem import FieldError


@pytest.mark.parametrize(
    ("value", "shown"), [(0.84, "0.8 s"), (42.2, "42 s"), (200, "3:20"), (7400, "2:03:20"), (None, None)]
)
def test_seconds(value: float | None, shown: str | None) -> None:
    assert seconds(value) == shown


def test_numbers() -> None:
    assert (number(1234567.2), number(None)) == ("1,234,567", None)
    assert (loss(2.5), loss(None)) == ("2.5000 nats/token", None)
    values = (1_234_567.0, -1_000_000.0, 0.123456789, 1_234_567.5, 1e300)
    assert [*map(logged, values)] == ["1234567", "-1000000", "0.123457", "1.23457e+06", "1e+300"]


def test_age_has_one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    monkeypatch.setattr(screen, "datetime", SimpleNamespace(now=lambda _: now))
    past = [age(now - timedelta(seconds=value)) for value in (5, 125, 7300, 200_000)]
    assert past == ["5s", "2m", "2h", "2d"]
    assert age(None) == ""


def test_an_error_names_field_and_remedy_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().error("It is [wrong].", [FieldError(field="a[0]", message="Bad [x].", remedy="Use [y].")])
    printed = capsys.readouterr().err
    assert printed.splitlines() == ["error: It is [wrong].", "  a[0]: Bad [x].", "  → Use [y]."]
    Screen().error("It is [wrong].", code="invalid_spec")
    assert capsys.readouterr().err == "error: It is [wrong]. (invalid_spec)\n"


def test_a_pipe_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().table(("A", "B"), [("x" * 300, "[red]y[/]")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["x" * 300, "y"]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal of 40 columns."""
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    return Screen()


def test_a_command_stays_on_its_line_in_a_narrow_terminal(narrow: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    """Else each part of it that is copied would run as a command of its own."""
    long = "shardyard submit " + " ".join(f"/tmp/folder-{number:02}/tiny.yaml" for number in range(8))
    assert narrow.err.width == 40 and len(long) > 200
    narrow.hint(f"Submit with: {long} [1].")
    narrow.say(f"Or with: {long}")
    narrow.error(f"No {long}", [FieldError(field="name", message=f"Not {long}", remedy=f"Use {long}")])
    narrow.warnings([FieldError(field="name", message=f"Not {long}", remedy=f"Use {long}")])
    narrow.facts("a job", [("command", long)])
    narrow.paragraph("notes", long)
    printed = capsys.readouterr()
    assert printed.err.count(long) == printed.err.count("\n") == 7
    assert printed.out.count(long) == 2 and printed.out.count("\n") == 4


def test_a_table_fits_a_narrow_terminal(narrow: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    narrow.table(("A", "B"), [("x" * 60, "y")])
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2 and all(len(line) <= 40 for line in lines) and "…" in lines[1]


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_pipe_is_no_terminal_whatever_the_environment_says(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a log in CI got a live view, drawings a hundred thousand columns wide, and the address that signs in."""
    monkeypatch.setenv(variable, "1")
    shown = Screen()
    assert not shown.out.is_terminal and not shown.err.is_terminal
    shown.link("http://127.0.0.1/?secret")
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [False, True])
def test_a_patch_is_unchanged_but_on_a_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git apply` takes form feeds and the ends of DOS lines as they are."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    Screen().content("-a\r\n+b\f\x1b[2J\n")
    assert capsys.readouterr().out == ("-a\n+b[2J\n" if terminal else "-a\r\n+b\f\x1b[2J\n")
