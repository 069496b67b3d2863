"""What `shardyard show` and `list` print of jobs that run programs, against a served API."""

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.workers.messages.event import MetricsEvent, to_json
from shardyard.workers.messages.metric_block import MetricBlock, packed

from ...conftest import SPEC, Gang, Plane

pytestmark = pytest.mark.usefixtures("asks_the_plane")

PROGRAM: dict[str, Any] = {
    "name": "mine",
    "command": ["python", "train.py", "--tag", "two words"],
    "ranks": 2,
    "env": {"python": ["einops==0.8", "timm"], "version": "3.12"},
}


def logs(gang: Gang, *values: tuple[str, int, float]) -> None:
    """Name, step and value."""
    blocks = tuple(MetricBlock((name,), (step,), packed(array("d", [value]))) for name, step, value in values)
    gang.emit(("metrics", to_json(MetricsEvent(rank=0, generation=1, blocks=blocks))))


def running(plane: Plane, client: Client, spec: dict[str, Any]) -> tuple[str, Gang]:
    job = client.submit(spec).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    return job, gang


def facts(shown: str) -> dict[str, str]:
    pairs = (line.strip().partition("  ") for line in shown.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def test_show_says_how_a_program_runs_and_what_it_logged_last(
    plane: Plane, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)")
    job, gang = running(plane, client, {**PROGRAM, "code": {"dir": str(tmp_path / "code")}})
    logs(gang, ("acc", 3, 0.5), ("acc", 1200, 0.931234567), ("seen", 9, 1234567.0), ("loss", 7, float("nan")))
    assert run(["show", job]) == 0
    shown = capsys.readouterr().out
    found = facts(shown)
    assert found["command"] == "python train.py --tag 'two words'"
    digest = client.job(job).spec["code"]["archive"]
    assert found["code"] == f"{tmp_path / 'code'} · digest {digest[:12]}"
    assert found["env"] == "einops==0.8, timm · Python 3.12"
    assert (found["acc"], found["loss"]) == ("0.931235 at step 1,200", "not finite at step 7")
    assert found["seen"] == "1234567 at step 9", "a whole number has all its digits"
    assert "model" not in found and "data" not in found, "it is no training"
    assert run(["show", job, "--json"]) == 0
    shown, read = json.loads(capsys.readouterr().out), json.loads(client.job(job).model_dump_json())
    assert {**shown, "device_s": None} == {**read, "device_s": None}, "that time goes on"


def test_show_has_the_first_line_of_a_script_and_a_part_of_many_values(
    plane: Plane, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "cd src\npython a.py\npython b.py\n"
    job, gang = running(plane, client, {"name": "text", "command": script, "cwd": str(tmp_path)})
    logs(gang, *((f"n{number:02}", 1, 1.0) for number in range(21)))
    assert run(["show", job]) == 0
    printed = capsys.readouterr()
    found = facts(printed.out)
    assert (found["command"], found["folder"]) == ("cd src … and 2 more lines", str(tmp_path))
    assert "n19" in found and "n20" not in found and "env" not in found
    assert f"See all that it logged with: shardyard metrics {job}" in printed.err


def test_list_has_the_step_and_loss_that_programs_logged(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"name": "named", "command": "a"}
    by_step, gang = running(plane, client, named)
    logs(gang, ("loss", 30, 0.25), ("eval/loss", 31, 9.0))
    by_name, gang = running(plane, client, named)
    logs(gang, ("loss", 1, 0.125), ("step", 1, 4_000_123.0))
    without, _ = running(plane, client, named)
    training, gang = running(plane, client, SPEC)
    gang.steps(1, 5)
    waiting = client.submit({**named, "ranks": 8}).id
    assert run(["list"]) == 0
    rows = {cells[0]: cells[3:] for cells in map(str.split, capsys.readouterr().out.splitlines()[1:])}
    assert rows[by_step][:2] == ["30", "0.25"]
    assert rows[by_name][:2] == ["4000123", "0.125"]
    assert rows[training][:2] == ["5/20", "1.0000"]
    assert rows[without][0] == "1" and rows[waiting][0] == "8", "of their ranks: there is no step"
    assert run(["list", "--json"]) == 0
    assert {item["progress"] and item["progress"]["step"] for item in json.loads(capsys.readouterr().out)["items"]} == {
        None,
        5,
    }
