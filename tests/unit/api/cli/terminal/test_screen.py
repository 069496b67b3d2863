"""Numbers, times and other people's text as they are shown."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from shardyard.api.cli.terminal import screen
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
