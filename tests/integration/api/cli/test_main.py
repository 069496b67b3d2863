"""The command line against a served API: output, exit codes, and what to type next."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.patience import PATIENCE_S
from harness.terminal import Terminal

from shardyard import __version__ as shardyard_version
from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ..conftest import SPEC, Gang, Plane, until

pytestmark = pytest.mark.usefixtures("asks_the_plane")


def shardyard(*arguments: str, stderr: int = subprocess.PIPE) -> "subprocess.Popen[str]":
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "shardyard.api.cli", *arguments]
    # A shell starts background jobs with SIGINT ignored, and `nohup` with SIGHUP, which children inherit: these receive them all the same.
    command = ["env", "--default-signal=INT,HUP", *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


def out(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_submit_list_show_cancel(client: Client, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", spec]) == 0
    printed = capsys.readouterr()
    job = client.job("tiny")
    assert printed.out == f"{job.id}  tiny  queued\n"
    assert f"shardyard watch {job.id}" in printed.err

    assert run(["list"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["ID", "NAME", "STATE"]
    assert row.split()[:3] == [job.id, "tiny", "queued"]

    assert run(["show", "tiny"]) == 0
    shown = capsys.readouterr().out
    for expected in ("llama nano", "data 2  (2 ranks)", job.batch, "team=search", "python-stdlib, bytes", "queued"):
        assert expected in shown

    assert run(["cancel", job.id]) == 0
    assert capsys.readouterr().out == f"{job.id}  tiny  cancelled\n"
    assert run(["watch", job.id]) == 103
    assert "cancelled" in capsys.readouterr().out


def test_reading_commands_speak_json(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    job = client.submit(SPEC)
    Gang(plane, job.id).log(0, 1, "hello")
    assert run(["list", "--json"]) == 0
    assert [item["id"] for item in out(capsys)["items"]] == [job.id]
    assert run(["show", job.id, "--json"]) == 0
    assert out(capsys)["spec"]["train"]["steps"] == 20
    assert run(["logs", job.id, "--json"]) == 0
    assert out(capsys)["text"] == "hello"
    assert run(["nodes", "--json"]) == 0
    assert out(capsys)[0]["host"] == "here"
    for more in ([], ["--json"]):
        assert run(["schema", *more]) == 0
        assert out(capsys)["title"] == "JobSpec"
    assert run(["cancel", job.id, "--json"]) == 0
    assert out(capsys)["state"] == "cancelling"


def test_list_filters_and_pages(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [client.submit({**SPEC, "name": f"n{number}"}) for number in range(3)]
    filtered = ["--label=team=search", "--state=queued", "--text=n", "--limit=2"]
    assert run(["list", *filtered]) == 0
    (hint,) = [line for line in capsys.readouterr().err.splitlines() if "More with" in line]
    assert f"shardyard list --state=queued --text=n --label=team=search --limit=2 --cursor {jobs[1].id}" in hint
    assert run(shlex.split(hint)[3:]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [jobs[0].id]
    for wrong, says in ((["team"], "Such as team=search."), (["team=a", "team=b"], "No job has two values of 'team'")):
        assert run(["list", *(f"--label={pair}" for pair in wrong)]) == 1
        assert says in capsys.readouterr().err
    assert run(["list", "--name", "n0", "--label", "team=search", "--state", "queued"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == jobs[0].id
    assert run(["list", "--name", "absent"]) == 0
    assert "shardyard submit" in capsys.readouterr().err


def test_submit_waits_for_the_result(plane: Plane, client: Client, spec: str) -> None:
    with shardyard("submit", spec, "--wait", "--json") as process:
        try:
            until(lambda: len(client.jobs().items) == 1)
            Gang(plane, job := client.job("tiny").id).succeed()
            printed, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert json.loads(printed)["summary"]["validation_loss"] == 0.5
    assert f"Submitted tiny as {job}." in said


def test_who_stops_waiting_learns_how_to_watch_on(plane: Plane, client: Client, spec: str) -> None:
    with shardyard("submit", spec, "--wait", "--json") as process:
        try:
            assert process.stderr is not None
            job = re.findall(r"job-\w+", process.stderr.readline())[0]
            process.send_signal(signal.SIGINT)
            printed, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, printed) == (130, "") and f"shardyard watch {job}" in said
    assert client.job(job).state == "queued"


def test_lines_that_match_are_followed_to_the_end_of_the_job(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    gang.log(0, 1, "ERROR: 1", "line 2")
    with shardyard("logs", job.id, "--follow", "--level", "error") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "1: [rank 0] ERROR: 1\n"
            gang.log(0, 3, "line 3", "ERROR: 4")
            assert process.stdout.readline() == "4: [rank 0] ERROR: 4\n"
            gang.log(0, 5, "ERROR: 5", "line 6")
            gang.succeed()
            rest, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, rest) == (0, "5: [rank 0] ERROR: 5\n")


def test_logs_follow_without_gap_to_the_end(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    gang.log(0, 1, *(f"line {number}" for number in range(1, 51)))
    with shardyard("logs", "-f", "--rank", "0", "--tail", "10", job.id) as process:
        try:
            assert process.stdout is not None
            read = [process.stdout.readline() for _ in range(10)]
            gang.log(1, 1, "another rank's")
            gang.log(0, 51, "line 51", "line 52")
            gang.succeed()
            rest, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "".join(read) + rest == "".join(f"line {number}\n" for number in range(41, 53))


def test_logs_name_the_rank(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    job = client.submit(SPEC)
    Gang(plane, job.id).log(1, 1, "a", "b")
    assert run(["logs", job.id]) == 0
    assert capsys.readouterr().out == "[rank 1] a\n[rank 1] b\n"


def test_reshard_of_a_waiting_job(client: Client, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["submit", spec])
    capsys.readouterr()
    assert run(["reshard", "tiny", "data=2", "zero=1"]) == 0
    printed = capsys.readouterr()
    job = client.job("tiny")
    assert printed.out == f"{job.id}  tiny  queued  data 2 (ZeRO-1)\n"
    assert job.spec["train"]["layout"]["data"] == 2 and f"shardyard watch {job.id}" in printed.err
    for wrong, field in (("data", "layout"), ("dota=2", "train.layout.dota"), ("tensor=7", "train.layout.tensor")):
        assert run(["reshard", "tiny", wrong]) == 1
        assert field in capsys.readouterr().err
    assert run(["cancel", "tiny"]) == 0
    assert run(["reshard", "tiny", "data=1"]) == 1
    assert "is cancelled" in capsys.readouterr().err


def test_reshard_of_a_command(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.submit({"name": "mine", "command": ["a"], "ranks": 2})
    assert run(["reshard", "mine", "ranks={min: 1, max: 3}"]) == 0
    assert "mine  queued  3 ranks" in capsys.readouterr().out
    for wrong, field in (("data=2", "layout.data"), ("ranks_per_node=2", "layout.ranks"), ("ranks=0", "ranks")):
        assert run(["reshard", "mine", wrong]) == 1
        assert field in capsys.readouterr().err
    assert client.job("mine").spec["elastic"] == {"min": 1, "max": 3}


def test_incidents_read_as_stories(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    job = client.submit(SPEC)
    assert run(["incidents", job.id]) == 0
    assert "No incidents are stored." in capsys.readouterr().err
    gang = Gang(plane, job.id)
    lost = {"cause": "rank_lost", "rank": 2, "node": "f8d3ab314835c392", "message": "the trainer was killed by SIGKILL"}
    gang.emit(("incident", {**lost, "generation": 1, "step": 41}))
    repair = {"cause": "rank_lost", "generation": 2, "restored": 41, "step": 42, "seconds": 0.94, "spares": [2]}
    gang.emit(("repair", repair))
    raised = {"cause": "exception", "rank": 0, "message": "ValueError: no", "traceback": "Traceback …\n  f()\n"}
    gang.emit(("incident", raised))
    assert run(["incidents", job.id]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(
        "Rank 2 on node f8d3ab314835 was lost after step 41: the trainer was killed by SIGKILL. The gang was repaired in place "
        "as generation 2, with a spare as rank 2, and trained again 0.9 s later, from step 41, which was in memory."
    )
    assert second.endswith("Rank 0 raised an exception: ValueError: no.")
    assert run(["incidents", job.id, "--traceback"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["Traceback …", "  f()"]
    page = client.incidents(job.id, limit=1)
    assert [item.repair and item.repair.restored for item in page.items] == [41]
    assert page.next is not None
    (rest,) = client.incidents(job.id, after=page.next).items
    assert (rest.cause, rest.repair, rest.traceback) == ("exception", None, "Traceback …\n  f()\n")


def test_a_repair_is_of_what_stopped_the_gang(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    message = "step-00000008 is corrupt: rank-00001 does not match its checksum; training continues from step-00000006."
    gang.emit(("incident", {"cause": "rank_lost", "rank": 2, "message": "killed", "step": 9}))
    gang.emit(("incident", {"cause": "checkpoint_corrupt", "rank": None, "message": message}))
    gang.emit(("repair", {"cause": "rank_lost", "generation": 2, "restored": None, "step": 7, "seconds": 2.0}))
    assert run(["incidents", job.id]) == 0
    lost, corrupt = capsys.readouterr().out.splitlines()
    assert "from the newest checkpoint" in lost
    assert corrupt.endswith(f"A checkpoint was corrupt and skipped: {message}")
    first = client.incidents(job.id, limit=1)
    assert first.items[0].repair is not None and first.next is not None
    assert client.incidents(job.id, after=first.next).items[0].repair is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "absent"], "shardyard list"),
        (["cancel", "absent"], "shardyard list"),
        (["submit", "/nowhere.yaml"], "/nowhere.yaml: No such file"),
        (["list", "--url", "http://127.0.0.1:1"], "shardyard up"),
        (["run", "/nowhere.yaml", "--url", "http://127.0.0.1:1"], "/nowhere.yaml"),
        (["list", "--url", "nonsense"], "http://127.0.0.1:8400"),
        (["list", "--state", "sleeping"], "state"),
        (["list", "--limit", "0"], "--limit"),
        (["lst"], "list"),
        (["show"], "JOB"),
    ],
)
def test_errors_are_1_and_say_what_to_type(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 1
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "following"),
    [
        (["lst"], "shardyard --help"),
        (["show"], "shardyard show --help"),
        (["list", "--limit", "0"], "shardyard list --help"),
        (["show", "absent"], "shardyard list"),
        (["compare", "one"], "shardyard compare --help"),
        (["checkpoints", "absent"], "shardyard list"),
        (["top", "--url", "http://127.0.0.1:1"], "shardyard up"),
        (["init", "/dev/null/job.yaml", "--yes"], "shardyard init PATH"),
        (["chaos", "absent"], "shardyard chaos JOB --kill-rank 2"),
    ],
)
def test_errors_end_with_the_next_command(
    arguments: list[str], following: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 1
    assert following in capsys.readouterr().err.splitlines()[-1]


def test_a_refused_spec_names_every_field(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(spec).write_text(yaml.safe_dump({**SPEC, "polcy": 1, "train": {**SPEC["train"], "stps": 3}}))
    assert run(["submit", spec]) == 1
    printed = capsys.readouterr().err
    assert "polcy" in printed and "Did you mean 'policy'?" in printed
    assert "train.stps" in printed and "Did you mean 'steps'?" in printed
    assert "shardyard schema" in printed


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in (
        "up",
        "down",
        "run",
        "submit",
        "list",
        "show",
        "watch",
        "logs",
        "incidents",
        "cancel",
        "schema",
        "migrate",
        "top",
        "compare",
        "checkpoints",
        "init",
        "completion",
    ):
        assert command in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{shardyard_version}\n"


def test_a_closed_pipe_is_no_traceback(client: Client) -> None:
    client.submit(SPEC)
    command = f"{sys.executable} -m shardyard.api.cli schema | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "Traceback" not in done.stderr


def test_colours_need_a_terminal_and_consent(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.cancel(client.submit(SPEC).id)
    colourless = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    for colour, expected in (({}, True), ({"NO_COLOR": "1"}, False)):
        with Terminal([sys.executable, "-m", "shardyard.api.cli", "list"], colourless | colour) as terminal:
            assert terminal.ends() == 0
        assert "cancelled" in terminal.text
        assert ("\x1b[33mcancelled" in terminal.raw) is expected
