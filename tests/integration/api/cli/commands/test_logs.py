"""`shardyard logs`: what it finds, where it goes on, and what stands around."""

import json
import re

import pytest

from shardyard.api.cli.commands import logs as command
from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.service.store import log_sizes

from ...conftest import SPEC, Gang, Plane

pytestmark = pytest.mark.usefixtures("asks_the_plane")


@pytest.fixture
def job(plane: Plane, client: Client) -> str:
    """Forty lines of two ranks, every tenth of rank 0 an error, one of rank 1 a warning."""
    found = client.submit(SPEC).id
    gang = Gang(plane, found)
    gang.log(0, 1, *(f"ERROR: bad luck {n}" if n % 10 == 0 else f"line {n}" for n in range(1, 31)))
    gang.log(1, 1, *(f"Warning: {n}" if n == 5 else f"line {n}" for n in range(1, 11)))
    return found


def test_lines_are_found_by_text_level_and_rank(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", job, "--search", "bad LUCK"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [f"{n}: [rank 0] ERROR: bad luck {n}" for n in (10, 20, 30)]
    assert printed.err.splitlines() == [f"See what stands around one with: shardyard logs {job} --around 30"]
    assert run(["logs", job, "--level", "warning", "--rank", "1"]) == 0
    assert capsys.readouterr().out == "35: Warning: 5\n"
    assert run(["logs", job, "--level", "error", "--json"]) == 0
    assert [json.loads(line)["position"] for line in capsys.readouterr().out.splitlines()] == [10, 20, 30]
    assert run(["logs", job, "--search", "absent", "--since", "1h"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "No line was found.\n")
    assert run(["logs", job, "--until", "2026-01-01"]) == 0
    assert capsys.readouterr().out == ""


def test_lines_are_found_by_a_pattern(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", job, "--search", r"LUCK [12]\d|^warn", "--regex", "--limit", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["10: [rank 0] ERROR: bad luck 10", "20: [rank 0] ERROR: bad luck 20"]
    more = printed.err.splitlines()[-1]
    assert more == f"More with: shardyard logs {job} --search 'LUCK [12]\\d|^warn' --regex --after 20"
    assert run(["logs", job, "--search", r"LUCK [12]\d|^warn", "--regex", "--after", "20"]) == 0
    assert capsys.readouterr().out == "35: [rank 1] Warning: 5\n"
    assert run(["logs", job, "--search", "bad [luck", "--regex"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and "not a regular expression: missing ]: '[luck' at character 5." in printed.err


def test_a_search_says_how_it_goes_on(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", SPEC["name"], "--search", "bad luck", "--rank", "0", "--limit", "2"]) == 0
    printed = capsys.readouterr()
    more = printed.err.splitlines()[-1]
    assert more == f"More with: shardyard logs {job} --search 'bad luck' --rank 0 --after 20"
    assert run(["logs", job, "--search", "bad luck", "--rank", "0", "--after", "20"]) == 0
    assert capsys.readouterr().out == "30: ERROR: bad luck 30\n"


def test_a_search_rests_after_a_bound(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_PAGES", 1)
    monkeypatch.setattr(command, "_PAGE", 1)
    assert run(["logs", job, "--level", "error"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "10: [rank 0] ERROR: bad luck 10\n"
    assert printed.err.splitlines()[-1] == f"More with: shardyard logs {job} --level error --after 10"


def test_what_stands_around_a_line(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", job, "--around", "20", "--limit", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "19: [rank 0] line 19",
        "20: [rank 0] ERROR: bad luck 20",
        "21: [rank 0] line 21",
    ]
    assert run(["logs", job, "--around", "20"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 20
    assert run(["logs", job, "--after", "38"]) == 0
    assert capsys.readouterr().out.splitlines() == ["[rank 1] line 9", "[rank 1] line 10"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--around", "3", "--follow"], "--follow and --around exclude each other"),
        (["--search", "a", "--follow", "--limit", "5"], "--limit goes with a search without --follow"),
        (["--level", "error", "--around", "3"], "--around and a search"),
        (["--tail", "3", "--around", "3"], "--tail and --around"),
        (["--since", "soon"], "10m"),
        (["--level", "loud"], "error"),
        (["--limit", "0"], "--limit"),
        (["--limit", "5"], "--limit goes with a search without --follow, or --around"),
        (["--around", "3", "--after", "2"], "--around and --after exclude each other"),
        (["--tail", "3", "--after", "2"], "--tail and --after exclude each other"),
        (["--regex", "--level", "error"], "--regex goes with --search"),
    ],
)
def test_what_does_not_go_says_what_does(
    job: str, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["logs", job, *arguments]) == 1
    captured = capsys.readouterr()
    assert expected in " ".join(captured.err.split()) and "shardyard logs --help" in captured.err.splitlines()[-1]
    assert captured.out == ""


def test_a_tail_of_none_is_followed_from_the_end(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.log(0, 1, "one", "two", "three")
    gang.succeed()
    assert run(["logs", job, "--follow", "--tail", "0"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["logs", job, "--follow", "--tail", "2"]) == 0
    assert capsys.readouterr().out == "[rank 0] two\n[rank 0] three\n"


def test_lines_that_retention_removed_are_noted_where_they_would_be(
    plane: Plane, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def notes(*options: str) -> str:
        assert run(["logs", job, *options]) == 0
        return capsys.readouterr().err

    async def remove(lines: int) -> None:
        async with plane.store.write() as tx:
            await log_sizes.remove_oldest(tx, job, lines)

    note = "The first 15 lines of this log were removed by retention."
    assert "removed" not in notes() + notes("--search", "absent") + notes("--around", "3")
    plane.do(remove(15))
    assert notes() == notes("--tail", "30") == notes("--after", "14") == notes("--around", "15") == f"{note}\n"
    assert notes("--search", "absent") == f"{note}\nNo line was found.\n"
    assert notes("--tail", "25") == notes("--after", "15") == notes("--around", "16") == ""
    plane.do(remove(100))
    assert notes() == notes("--tail", "1") == "The first 40 lines of this log were removed by retention.\n"


def test_times_stand_before_the_lines(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["logs", job, "--rank", "1", "--tail", "1", "-t"]) == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z line 10\n", capsys.readouterr().out)


def test_a_job_is_searched_by_a_pattern(job: str, client: Client) -> None:
    found = client.job(job).search_logs(r"luck [23]\d", regex=True)
    assert [line.text for line in found.lines] == ["ERROR: bad luck 20", "ERROR: bad luck 30"]
