"""`shardyard watch` and `shardyard run` against a served API: a live view, lines in a pipe, and what an interrupt does."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.patience import PATIENCE_S

from shardyard.api.cli.commands.run_watch import Follower, PrintedLogs
from shardyard.api.cli.main import run
from shardyard.api.cli.terminal.screen import Screen
from shardyard.api.client import Client

from ...conftest import SPEC, Gang, Plane, until
from ..conftest import CLI
from ..test_main import shardyard

pytestmark = pytest.mark.usefixtures("asks_the_plane")

PROGRAM: dict[str, Any] = {"name": "mine", "command": ["true"], "ranks": 2}


@contextmanager
def followed(plane: Plane, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A command line as a process of its own, once it follows a job. It does not outlive the block."""
    with shardyard(*arguments) as process:
        try:
            until(lambda: plane.app.state.context.hub.watched == 1)
            yield process
        finally:
            process.kill()


def test_watch_is_a_live_view(plane: Plane, client: Client, shown: Any) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    gang.state("running")
    gang.steps(1, 10)
    with shown("watch", job.id) as terminal:
        terminal.shows("running", "10/20", "loss  █", "5.0000 → 0.5000", "5,120 tokens/s")
        gang.emit(("probe", {"step": 11, "busy_s": [0.02, 0.08], "wait_s": [0.06, 0.0]}))
        gang.emit(("incident", {"cause": "rank_lost", "rank": 1, "message": "killed", "step": 11}))
        gang.steps(11, 15)
        terminal.shows("15/20", "80 ms own", "last incident", "rank_lost killed", "slowest: rank 1")
        gang.steps(16, 20)
        gang.succeed()
        assert terminal.ends() == 0
        terminal.shows("validation loss")


def test_watch_shows_progress_and_the_summary(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    with followed(plane, "watch", job.id) as process:
        gang = Gang(plane, job.id)
        gang.state("running")
        gang.steps(1, 20)
        gang.emit(("eval", {"step": 20, "loss": 0.5, "unigram_loss": 3.0, "tokens": 10}))
        gang.succeed()
        printed, remarks = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "step 20/20 · loss 0.2500 · 5,120 tokens/s" in remarks
    assert "validation at step 20: 0.5000 nats/token (unigram loss: 3.0000)" in remarks
    assert "\x1b" not in printed + remarks
    expected = {
        "training loss        5.0000 → 0.2500 nats/token (mean of the last 2 steps)",
        "validation loss      0.5000 nats/token",
        "unigram loss         3.0000 nats/token",
        "tokens               10,240",
        "tokens/s             5,120",
        "checkpoint           /somewhere/step-00000020",
        "Hugging Face folder  /somewhere/export-00000020",
    }
    lines = {line.strip() for line in printed.splitlines()}
    assert expected <= lines
    assert any(line.startswith("time to first step   ") for line in lines)


def test_interrupting_watch_leaves_the_job(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    with followed(plane, "watch", job.id) as process:
        process.send_signal(signal.SIGINT)
        _, remarks = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert f"shardyard watch {job.id}" in remarks
    assert client.job(job.id).state == "queued"


def test_interrupting_run_cancels_the_job(plane: Plane, client: Client, spec: str) -> None:
    with Path(spec).open("a") as file:
        file.write("# why\n")
    with followed(plane, "run", spec, "train.steps=19") as process:
        process.send_signal(signal.SIGINT)
        printed, remarks = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 103
    assert "Cancelling" in remarks
    assert "cancelled" in printed
    assert (client.job("tiny").state, client.job("tiny").spec["train"]["steps"]) == ("cancelled", 19)
    assert "# why\n" in (client.submitted_spec("tiny").text or "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_processes_cancels_the_job_of_a_run(
    number: signal.Signals, code: int, plane: Plane, client: Client, spec: str
) -> None:
    with followed(plane, "run", spec) as process:
        process.send_signal(number)
        _, remarks = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, remarks
    assert client.job("tiny").state == "cancelled"


@pytest.mark.parametrize(("first", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 103)])
def test_a_sigterm_later_leaves_a_run_waiting_for_the_end_of_its_job(
    first: signal.Signals, code: int, plane: Plane, client: Client, spec: str
) -> None:
    """As from `timeout`, which signals its child and then its process group, and from a CI runner, which begins with SIGINT."""
    with followed(plane, "run", spec) as process:
        gang = Gang(plane, client.job("tiny").id)
        process.send_signal(first)
        until(lambda: client.job("tiny").state == "cancelling")
        process.send_signal(signal.SIGTERM)
        until(lambda: plane.app.state.context.hub.watched == 1)
        gang.state("cancelled")
        printed, remarks = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert "Cancelling" in remarks and "Left." not in remarks and "cancelled" in printed


@pytest.mark.parametrize(
    ("errors_too", "number", "code"),
    [(True, signal.SIGINT, 103), (False, signal.SIGTERM, 143)],
    ids=["2>&1 |", "|"],
)
def test_a_run_whose_pipe_ends_with_it_cancels_its_job(
    errors_too: bool, number: signal.Signals, code: int, plane: Plane, client: Client, tmp_path: Path
) -> None:
    """As `run job.yaml | tee log`: Ctrl-C ends tee, too. What the job prints from then on goes nowhere."""
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(PROGRAM))
    with shardyard("run", str(path), stderr=subprocess.STDOUT if errors_too else subprocess.DEVNULL) as process:
        try:
            until(lambda: plane.app.state.context.hub.watched == 1)
            gang = Gang(plane, client.job("mine").id)
            assert process.stdout is not None
            process.stdout.close()
            process.send_signal(number)
            until(lambda: client.job("mine").state == "cancelling")
            until(lambda: plane.app.state.context.hub.watched == 1)
            gang.log(0, 1, "it ends")
            gang.state("cancelled")
            assert process.wait(PATIENCE_S) == code
        finally:
            process.kill()


def test_a_run_below_nohup_goes_on_without_its_terminal(plane: Plane, client: Client, spec: str) -> None:
    with subprocess.Popen(["env", "--ignore-signal=HUP", *CLI, "run", spec]) as process:
        try:
            until(lambda: plane.app.state.context.hub.watched == 1)
            gang = Gang(plane, client.job("tiny").id)
            process.send_signal(signal.SIGHUP)
            gang.succeed()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_closing_the_terminal_of_a_run_cancels_its_job(plane: Plane, client: Client, spec: str) -> None:
    """What it prints from then on raises errors, unless it is discarded."""
    owns = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    master, slave = os.openpty()
    command = ["env", "--default-signal=HUP", sys.executable, "-c", owns, *CLI, "run", spec]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
        try:
            os.close(slave)
            until(lambda: plane.app.state.context.hub.watched == 1)
            os.close(master)
            assert process.wait(PATIENCE_S) == 129
        finally:
            process.kill()
    assert client.job("tiny").state == "cancelled"


def test_an_interrupt_before_the_job_is_watched_cancels_it_too(
    client: Client, spec: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Screen, "warnings", interrupted)
    assert run(["run", spec]) == 103
    assert "Cancelling" in capsys.readouterr().err
    assert client.job("tiny").state == "cancelled"


def test_the_second_interrupt_leaves_the_job(plane: Plane, client: Client, spec: str) -> None:
    with followed(plane, "run", spec) as process:
        Gang(plane, client.job("tiny").id)
        process.send_signal(signal.SIGINT)
        until(lambda: client.job("tiny").state == "cancelling")
        process.send_signal(signal.SIGINT)
        _, remarks = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "shardyard watch" in remarks


def test_a_failed_job_says_why(plane: Plane, client: Client, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = client.submit(spec)
    message = 'rank 1: ValueError: [boom]\nTraceback (most recent call last):\n  File "x.py", line 1'
    Gang(plane, job.id).state("failed", "exception", message)
    assert run(["watch", job.id]) == 100
    printed = capsys.readouterr().err
    assert message in printed
    assert f"shardyard logs {job.id}" in printed
    assert run(["show", job.id]) == 0
    assert message in capsys.readouterr().err


def test_watch_as_json_lines(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    gang.steps(1, 2)
    gang.succeed()
    assert run(["watch", job.id, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "step"] == [1, 2]
    assert lines[-1]["state"] == "succeeded"


def test_run_prints_what_rank_0_of_a_program_prints(plane: Plane, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(PROGRAM))
    with followed(plane, "run", str(path)) as process:
        job = client.job("mine")
        gang = Gang(plane, job.id)
        gang.log(0, 1, "loss 0.5")
        gang.log(1, 1, "another rank's")
        gang.log(0, 2, "loss 0.25")
        gang.state("succeeded")
        printed, remarks = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert printed.splitlines()[:2] == ["loss 0.5", "loss 0.25"] and "another" not in printed
    assert f"Submitted mine as {job.id}: 2 ranks.\n" in remarks
    assert "Rank 0's log lines follow; --all-ranks prints those of all ranks.\n" in remarks


@pytest.mark.parametrize(
    ("logs", "spec", "printed"),
    [
        (PrintedLogs(), PROGRAM, ["zero"]),
        (PrintedLogs(), SPEC, []),
        (PrintedLogs.given(1, all_ranks=False), PROGRAM, ["one"]),
        (PrintedLogs.given(1, all_ranks=False), SPEC, ["one"]),
        (PrintedLogs.given(0, all_ranks=False), SPEC, ["zero"]),
        (PrintedLogs.given(None, all_ranks=True), PROGRAM, ["[rank 0] zero", "[rank 1] one"]),
    ],
)
def test_lines_of_a_rank_or_of_all(
    plane: Plane,
    client: Client,
    logs: PrintedLogs,
    spec: dict[str, Any],
    printed: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = client.submit(spec)
    gang = Gang(plane, job.id)
    gang.log(0, 1, "zero")
    gang.log(1, 1, "one")
    gang.state("succeeded")
    assert Follower(client, Screen(), logs).follow(job).state == "succeeded"
    assert capsys.readouterr().out.splitlines() == printed


def test_beside_a_json_document_the_lines_are_on_stderr(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    job = client.submit(PROGRAM)
    gang = Gang(plane, job.id)
    gang.log(0, 1, "zero")
    gang.state("succeeded")
    Follower(client, Screen(), PrintedLogs(beside=True)).follow(job)
    printed = capsys.readouterr()
    assert printed.out == "" and "zero" in printed.err.splitlines()


def test_lines_are_events_of_a_watch_as_json_if_an_option_asks(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    job = client.submit(PROGRAM)
    gang = Gang(plane, job.id)
    gang.log(0, 1, "zero")
    gang.log(1, 1, "one")
    gang.state("succeeded")
    for options, expected in (([], []), (["--rank", "1"], [(1, "one")]), (["--all-ranks"], [(0, "zero"), (1, "one")])):
        assert run(["watch", job.id, "--json", *options]) == 0
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(event["rank"], event["text"]) for event in events if event["kind"] == "log"] == expected
        assert events[-1]["state"] == "succeeded"
    assert run(["watch", job.id, "--rank", "1", "--all-ranks"]) == 1
    assert "--rank and --all-ranks exclude each other." in capsys.readouterr().err


def test_what_a_program_prints_is_above_the_live_view(plane: Plane, client: Client, shown: Any) -> None:
    job = client.submit(PROGRAM)
    gang = Gang(plane, job.id)
    gang.state("running")
    with shown("watch", job.id) as terminal:
        terminal.shows("mine is running")
        gang.log(0, 1, "epoch 1 of 2")
        terminal.shows("epoch 1 of 2")
        gang.state("succeeded")
        assert terminal.ends() == 0
        assert "0/0" not in terminal.text
