"""`shardyard trace` against a served API and a gang that reports what was asked for."""

import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from harness.trace_events import trace_events, trace_part

from shardyard.api.cli.commands import trace as command
from shardyard.api.cli.main import run
from shardyard.api.cli.terminal.event_lines import remark
from shardyard.api.cli.terminal.screen import Screen
from shardyard.api.client import Client

from ...conftest import Gang, Plane, running_job, until
from ..conftest import Restart

pytestmark = pytest.mark.usefixtures("asks_the_plane")


@pytest.fixture
def running(plane: Plane, client: Client) -> tuple[str, Gang]:
    return running_job(plane, client)


def answering(client: Client, job: str, report: Callable[[str], None]) -> threading.Thread:
    """Report the next trace that is asked for."""

    def wait_and_report() -> None:
        with Client(client.url) as mine:
            known = len(mine.traces(job).items)
            asked.set()
            until(lambda: len(mine.traces(job).items) > known)
            report(mine.traces(job).items[0].id)

    asked = threading.Event()
    thread = threading.Thread(target=wait_and_report, daemon=True)
    thread.start()
    assert asked.wait(PATIENCE_S)
    return thread


def failing(client: Client, job: str, gang: Gang, message: str) -> threading.Thread:
    """Report that the next trace that is asked for failed."""
    failed = {"done": False, "message": message, "steps": None}
    return answering(client, job, lambda trace: gang.emit(("trace_finished", {"id": trace, **failed})))


def test_it_waits_sums_up_and_writes_the_file(
    running: tuple[str, Gang], client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, gang = running

    def slowed(trace: str) -> None:
        parts = [trace_part(trace, rank, step, slower_ms=50.0 * rank) for step in (5, 6, 7) for rank in (0, 1)]
        gang.emit(*(("trace", one) for one in parts), trace_events(trace)[-1])

    thread = answering(client, job, slowed)
    packed = tmp_path / "steps.json.gz"
    assert run(["trace", "tiny", "-o", str(packed)]) == 0
    thread.join(PATIENCE_S)
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    [trace] = [one.id for one in client.traces(job).items]
    assert lines[0] == f"{trace}  steps 5 to 7, means"
    assert lines[1].startswith("rank    0  ") and "█" in lines[1] and "ms own" in lines[1]
    assert lines[2].startswith("rank    1  ") and "+" in lines[2]
    assert lines[3].split() == [
        "█",
        "forward",
        "▓",
        "backward",
        "◆",
        "optimizer",
        "=",
        "data",
        "+",
        "other",
        *["<", "receive"],
        "░",
        "collective",
    ]
    assert lines[4] == "bubble  20.5% measured, 20.0% ideal"
    assert lines[5] == "slowest rank  1, 50.0 ms more compute time than the others' median"
    assert "Tracing 3 steps" in printed.err and f"Open {packed} at https://ui.perfetto.dev" in printed.err
    plain = tmp_path / "steps.json"
    assert run(["trace", job, "--show", trace, "-o", str(plain)]) == 0
    assert json.loads(plain.read_text()) == json.loads(gzip.decompress(packed.read_bytes()))
    capsys.readouterr()
    assert run(["trace", job, "--show", trace, "--json"]) == 0
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (body["slowest_rank"], [step["step"] for step in body["steps"]]) == (1, [5, 6, 7])
    assert run(["trace", job, "--list"]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert (row[0], row[2], row[3]) == (trace, "done", "5–7")


@pytest.mark.usefixtures("a_week_later")
def test_a_list_has_the_dates_of_traces_that_were_requested_before_today(
    running: tuple[str, Gang], client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = client.trace(running[0])
    assert run(["trace", "tiny", "--list"]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[:3] == [asked.id, *f"{asked.asked_at.astimezone():%Y-%m-%d %H:%M:%S}".split()]


def test_a_trace_that_fails_says_why_and_is_an_error(
    running: tuple[str, Gang], client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    job, gang = running
    thread = failing(client, job, gang, "repaired")
    assert run(["trace", job, "--steps", "1"]) == 1
    thread.join(PATIENCE_S)
    printed = capsys.readouterr()
    assert printed.out == "" and "failed: repaired" in printed.err and f"shardyard incidents {job}" in printed.err
    (failed,) = client.traces(job).items
    assert run(["trace", job, "--show", failed.id, "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["trace"]["message"] == "repaired" and printed.err == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_the_file_is_written_though_the_summarys_reader_ends_early(
    as_json: bool, running: tuple[str, Gang], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `| head` does: then rich ends the command."""

    def cut(*_: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(command, "_show", cut)
    monkeypatch.setattr(Screen, "json", cut)
    job, gang = running
    trace = client.trace(job).id
    gang.emit(*trace_events(trace))
    until(lambda: client.traces(job).items[0].state == "done")
    assert run(["trace", job, "--show", trace, "-o", str(tmp_path / "steps.json"), *["--json"][:as_json]]) == 1
    assert (tmp_path / "steps.json").stat().st_size


def test_a_restart_of_the_control_plane_is_waited_out(
    running: tuple[str, Gang], plane: Plane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, gang = running
    restart = Restart(command, plane, lambda: gang.emit(*trace_events(client.traces(job).items[0].id)), monkeypatch)
    assert run(["trace", job]) == 0 and restart.is_over


def test_a_list_of_traces_names_the_command_for_its_next_page(
    running: tuple[str, Gang], client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardyard.api.cli.commands.trace._PAGE", 1)
    job, gang = running
    for message in ("first", "second"):
        thread = failing(client, job, gang, message)
        run(["trace", job, "--steps", "1"])
        thread.join(PATIENCE_S)
    capsys.readouterr()
    assert run(["trace", job, "--list"]) == 0
    printed = capsys.readouterr()
    assert "second" in printed.out and "first" not in printed.out
    more = printed.err.split("shardyard ", 1)[1].split()
    assert run(more) == 0
    printed = capsys.readouterr()
    assert "first" in printed.out and "second" not in printed.out and "More with" not in printed.err


@pytest.mark.parametrize(
    ("arguments", "reason", "remedy"),
    [
        (["absent"], "absent", "shardyard list"),
        (["tiny", "--show", "trace-1"], "no trace", "--list"),
        (["tiny", "--steps", "21"], "Error", "shardyard trace --help"),
        (["tiny", "--before", "trace-1"], "--list", "shardyard trace --help"),
    ],
)
def test_errors_end_with_the_next_thing_to_type(
    running: tuple[str, Gang], capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str, remedy: str
) -> None:
    assert run(["trace", *arguments]) == 1
    printed = capsys.readouterr().err
    assert reason in printed and remedy in printed.splitlines()[-1]


def test_those_who_watch_the_job_see_it(running: tuple[str, Gang], client: Client) -> None:
    job, gang = running
    done = client.trace(job).id
    gang.emit(*trace_events(done))
    failed = client.trace(job).id
    gang.state("succeeded")
    first, second = [remark(event) or "" for event in client.events(job) if event.kind == "trace_finished"]
    assert first.endswith(f"trace {done} of steps 5 to 7, requested by local")
    assert f"trace {failed} failed: the attempt ended" in second
