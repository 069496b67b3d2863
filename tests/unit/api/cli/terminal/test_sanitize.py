"""Control sequences in text from elsewhere do not reach the terminal."""

import pytest
from rich.markup import escape

from shardyard.api.cli.terminal.screen import Screen
from shardyard.service.schemas.problem import FieldError


def test_a_log_line_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().line("\x1b[2Jgone\x07\r\tkept ü \x9b1m")
    assert capsys.readouterr().out == "[2Jgone\tkept ü 1m\n"


HOSTILE = "a\x1b[2J\x1b]0;title\x07b\r\nc\u202ed\u2028e :x:"


TAMED = "a[2J]0;titlebcde :x:"


def test_no_cell_fact_or_message_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.table(("A", HOSTILE.replace("[", "(")), [(escape(HOSTILE), "y")])
    screen.facts(HOSTILE, [(HOSTILE, HOSTILE)])
    output = capsys.readouterr().out
    assert output.splitlines()[1].split("  ")[0] == TAMED
    assert [line.strip() for line in output.splitlines()[2:]] == [TAMED, f"{TAMED}  {TAMED}"]
    for say in (screen.say, screen.hint, screen.error, lambda text: screen.out.print(escape(text))):
        say(HOSTILE)
    screen.error("x", [FieldError(field=HOSTILE, message=HOSTILE, remedy=HOSTILE)])
    printed = "".join(capsys.readouterr())
    assert not {"\x1b", "\x07", "\r", "\u202e", "\u2028"} & {*output, *printed}
    assert ":x:" in printed
