"""`shardyard curves` in a pipe, as JSON and on a real terminal."""

import json
import os
import sys

import pytest
from harness.terminal import Terminal

from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.service.queries.curves import SERIES

from ...conftest import SPEC, Gang, Plane, step

pytestmark = pytest.mark.usefixtures("asks_the_plane")


@pytest.fixture
def job(plane: Plane, client: Client) -> str:
    """A job of 100 steps, of which step 60 has a spike."""
    found = client.submit(SPEC).id
    gang = Gang(plane, found)
    gang.state("running")
    steps = [("step", {**step(number), "loss": 9.0 if number == 60 else 5.0 / number}) for number in range(1, 101)]
    gang.emit(*steps, ("eval", {"step": 100, "loss": 0.5, "unigram_loss": 3.0}))
    return found


def test_in_a_pipe_it_is_columns(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["curves", job, "--names", "loss, lr,loss_scale", "--from", "57", "--buckets", "12"]) == 0
    printed = capsys.readouterr()
    head, *rows = [line.split("\t") for line in printed.out.splitlines()]
    assert head == ["step", "loss", "loss_low", "loss_high", "lr", "lr_low", "lr_high"]
    assert [row[0] for row in rows] == [str(first) for first in range(57, 101, 4)]
    assert rows[0][3] == "9.0" and float(rows[0][2]) == pytest.approx(5 / 59, abs=1e-5)
    assert "loss_scale" in printed.err and "\x1b" not in printed.out
    assert run(["curves", job, "--from", "3", "--to", "4"]) == 0
    assert capsys.readouterr().out == "step\tloss\n3\t1.66667\n4\t1.25\n"
    assert run(["curves", job, "--json", "--buckets", "2"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["width"], body["last_step"], body["series"]["loss"]["high"][0]) == (128, 100, 9.0)


def test_before_the_first_step_and_what_there_is_not(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    job = client.submit(SPEC).id
    assert run(["curves", job]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()[-1]) == (
        "step\n",
        f"No step yet. See how far it is with: shardyard show {job}",
    )
    assert run(["curves", job, "--names", "lost"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and "'lost'" in printed.err and "grad_norm" in printed.err
    assert run(["curves", "--help"]) == 0
    helped = capsys.readouterr().out
    assert [name for name in SERIES if name not in helped] == []
    assert run(["curves", "absent"]) == 1
    assert "shardyard list" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("colours", [True, False])
def test_on_a_terminal_it_is_drawn(job: str, plane: Plane, colours: bool) -> None:
    given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment = given if colours else {**given, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "shardyard.api.cli", "curves", job, "--names", "loss,lr"]
    with Terminal(command, environment, (40, 80)) as terminal:
        assert terminal.ends() == 0
        lines = terminal.text.splitlines()
        assert ("\x1b[36m" in terminal.raw) == colours
    charts = [line for line in lines if any(0x2800 < ord(character) < 0x2900 for character in line)]
    assert lines[0].startswith("loss  0.05 at step 100") and max(map(len, lines)) <= 80
    assert len(charts) >= 2 and charts[0].split()[0] == "9"
    assert "step 1" in "".join(lines) and "validation loss 0.5000 at step 100" in "".join(lines)
