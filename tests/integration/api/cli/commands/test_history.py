"""`shardyard timeline`, `incidents --newest`, `show` and `submit --dry-run` against a served API."""

import json
import os
import sys
from pathlib import Path

import pytest
import yaml
from harness.patience import PATIENCE_S
from harness.terminal import Terminal

from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.strategies import cxx_compiler
from shardyard.workers.dry_run import module_plan
from shardyard.workers.own_plan import digest
from shardyard.workers.planned_memory import HeldBytes, PlannedMemory
from shardyard.workers.spec import TrainSpec

from ...conftest import SPEC, Gang, Plane

EXAMPLES = Path(__file__).parents[5] / "examples"
pytestmark = pytest.mark.usefixtures("asks_the_plane")


@pytest.fixture
def job(plane: Plane, client: Client) -> str:
    """A job that was repaired and trains."""
    found = client.submit(SPEC).id
    gang = Gang(plane, found)
    gang.state("starting")
    gang.emit(("plan", {"parameters": 1_234_567, "train_tokens": 9000, "validation_tokens": 900}))
    gang.state("running")
    gang.steps(1, 3)
    gang.emit(("incident", {"cause": "rank_lost", "rank": 1, "message": "killed", "step": 3}))
    gang.state("recovering", "rank_lost")
    gang.emit(("repair", {"cause": "rank_lost", "rank": 1, "generation": 2, "restored": 3, "step": 4, "seconds": 0.5}))
    gang.state("running")
    gang.emit(("incident", {"cause": "loss_spike", "message": "a leap", "step": 5}))
    return found


def test_a_timeline_shows_all_in_order(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["timeline", job]) == 0
    printed = capsys.readouterr()
    head, *rows = [line.split() for line in printed.out.splitlines()]
    assert head == ["WHEN", "WHAT", "LASTED", "ATTEMPT", "GENERATION", "STEP", "ABOUT"]
    happened = [row[2] for row in rows]
    assert happened == [
        *("queued", "placing", "starting", "running", "incident", "recovering", "repair", "running", "incident"),
    ]
    assert rows[4][-4:] == ["3", "rank_lost,", "rank", "1"]
    assert printed.err.splitlines()[-1] == f"See what went wrong with: shardyard incidents {job} --newest"
    assert run(["timeline", job, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (len(body["spans"]), [mark["kind"] for mark in body["marks"]]) == (6, ["incident", "repair", "incident"])
    assert run(["timeline", "absent"]) == 1
    assert "shardyard list" in capsys.readouterr().err


def test_on_a_terminal_the_timeline_is_a_line_too(job: str) -> None:
    with Terminal([sys.executable, "-m", "shardyard.api.cli", "timeline", job], dict(os.environ)) as terminal:
        assert terminal.ends() == 0
        line, legend = terminal.text.splitlines()[:2]
    assert set(line.strip()) <= set("·-=█▒") and len(line) <= 140
    assert "█ running" in legend and "▒ recovering" in legend


def test_incidents_newest_first(job: str, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["incidents", job, "--newest", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [item["cause"] for item in items] == ["loss_spike", "rank_lost"]
    assert run(["incidents", job, "--newest", "--before", str(items[0]["position"]), "--json"]) == 0
    assert [item["cause"] for item in json.loads(capsys.readouterr().out)["items"]] == ["rank_lost"]
    for wrong in (["--before", "9"], ["--newest", "--after", "1"]):
        assert run(["incidents", job, *wrong]) == 1
        assert capsys.readouterr().err.splitlines()[-1].endswith("shardyard incidents --help")


@pytest.mark.parametrize(
    "command",
    [
        ["incidents", "{job}", "--after", "1"],
        ["ranks", "{job}", "--before", "9"],
        ["logs", "{job}", "--around", "1"],
        ["logs", "{job}", "--after", "1"],
        ["logs", "{job}", "--search", "a", "--after", "1"],
        ["checkpoints", "{job}", "--before", "9"],
    ],
    ids=" ".join,
)
def test_a_place_goes_with_the_jobs_id(
    job: str, client: Client, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """The name may mean a newer job by now, whose records have other places."""
    newer = client.submit(SPEC)
    assert run([word.format(job=newer.name) for word in command]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and f"'{newer.name}' is not the id of a job." in printed.err
    assert "shardyard list --name NAME" in printed.err
    assert run([word.format(job=job) for word in command]) == 0


def test_the_next_page_is_of_the_job_that_the_name_meant(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    found = client.submit(SPEC)
    incident = ("incident", {"cause": "rank_lost", "rank": 1, "message": "killed", "step": 3})
    Gang(plane, found.id).emit(*[incident] * 101)
    assert run(["incidents", found.name]) == 0
    more = capsys.readouterr().err.splitlines()[-1].removeprefix("More with: shardyard ").split()
    client.submit(SPEC)
    assert more[:2] == ["incidents", found.id] and run([*more, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == 1


def test_show_gives_the_plan_and_its_states(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", job]) == 0
    printed = capsys.readouterr()
    for expected in ("1,234,567", "9,000 tokens, 900 for validation", "recovering · rank_lost"):
        assert expected in printed.out
    assert printed.err.splitlines()[-1] == f"See the whole timeline with: shardyard timeline {job}"


def test_a_dry_run_shows_what_would_run_and_stores_nothing(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    assert run(["submit", str(path), "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert "data 2  (2 ranks)" in printed.out and f"shardyard submit {path}" in printed.err
    assert "unknown whether it fits: " in printed.out and "the process itself 286.1 MiB" in printed.out
    assert run(["submit", str(path), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["world_size"] == 2 and found["memory"]["bytes"] == sum(
        one["bytes"] for one in found["memory"]["kinds"]
    )
    assert client.jobs().items == []
    path.write_text(yaml.safe_dump({**SPEC, "polcy": 1}))
    assert run(["submit", str(path), "--dry-run"]) == 1
    assert "polcy" in capsys.readouterr().err


def test_without_a_formula_a_dry_run_names_the_command_that_measures(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "train": {**SPEC["train"], "model": {"import": "bigram:make"}}}))
    assert run(["submit", str(path), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "not planned: there is no formula for a module of your own" in printed
    assert f"shardyard dry-run {path}" in printed
    assert client.jobs().items == []


def test_a_submission_sends_the_plan_that_a_dry_run_finds(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned_memory(train: TrainSpec, precision: str, timeout_s: float) -> PlannedMemory:
        assert precision == "fp32" and 0 < timeout_s <= 30
        return PlannedMemory(of=digest(train), ranks=2, parameters=7, at_peak=HeldBytes(logits=2**30))

    monkeypatch.setattr(module_plan, "planned_memory", planned_memory)
    monkeypatch.setenv("SHARDYARD_DRY_RUN_S", "3")
    path = tmp_path / "own.yaml"
    spec = {**SPEC, "train": {**SPEC["train"], "model": {"import": "bigram:make"}}}
    path.write_text(f"# mine\n{yaml.safe_dump(spec)}")
    assert run(["submit", str(path), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "at the peak" in printed and "logits 1.0 GiB" in printed and "by dry run" in printed
    assert run(["submit", str(path)]) == 0
    [job] = client.jobs().items
    submitted = client.submitted_spec(job.id).text or ""
    assert submitted.startswith("# mine") and "planned: {of: " in submitted
    assert client.job(job.id).spec["train"]["planned"]["parameters"] == 7
    capsys.readouterr()
    assert run(["resources", job.id]) == 0
    shown = capsys.readouterr()
    assert "by the submitter's dry run" in shown.err and "1.0 GiB" in shown.out


@pytest.mark.full
@pytest.mark.skipif(cxx_compiler.found() is None, reason="a dry run compiles its fake device: no C++ compiler here")
def test_the_example_of_a_module_is_planned_here(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDYARD_DRY_RUN_S", str(PATIENCE_S))
    model = {"import": "bigram:make", "code": str(EXAMPLES / "own_module")}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "train": {**SPEC["train"], "model": model}}))
    assert run(["submit", str(path), "--dry-run", "--json"]) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    held = {one["kind"]: one["bytes"] for one in memory["kinds"]}
    parameters = 4 * (2 * 256 * 64 + (64 * 256 + 256) + (256 * 64 + 64) + (64 * 256 + 256))
    assert memory["source"] == "dry run" and held["parameters"] >= parameters <= held["optimizer"] / 2
