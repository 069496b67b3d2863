"""`shardyard clone`, and values that `shardyard submit` sets."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.workers.dry_run import module_plan
from shardyard.workers.dry_run.processes import DryRunUnavailable

from ...conftest import SPEC

TEXT = """\
name: tiny  # the smallest
train:
  steps: 20
  global_batch: 8
  layout: {data: 2}
  data: {seq_len: 64}
labels: {team: search}
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(TEXT)
    return str(path)


def editor(tmp_path: Path, script: str) -> str:
    """An editor that runs a line of a shell on its file."""
    path = tmp_path / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_clone_has_the_text_and_the_values_of_the_command_line(
    client: Client, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job, url = client.submit(spec), ["--url", client.url]
    assert run(["clone", "tiny", "train.steps=30", "labels.why=longer", "--key", "k", "--json", *url]) == 0
    new = json.loads(capsys.readouterr().out)
    assert (new["name"], new["spec"]["train"]["steps"], new["state"]) == ("tiny-clone", 30, "queued")
    assert new["labels"] == {"team": "search", "parent": job.id, "why": "longer"}
    text = client.submitted_spec(new["id"]).text or ""
    assert "name: tiny-clone  # the smallest\n" in text and "steps: 30\n" in text
    assert run(["clone", "tiny", "train.steps=30", "labels.why=longer", "--key", "k", *url]) == 0
    assert new["id"] in capsys.readouterr().out
    client.submit(spec)
    assert run(["clone", "tiny", "train.steps=30", "labels.why=longer", "--key", "k", *url]) == 0
    assert new["id"] in capsys.readouterr().out
    assert run(["clone", "tiny", "train.layout[3]=1", *url]) == 1
    assert "no place for 'train.layout[3]'" in capsys.readouterr().err
    assert run(["clone", new["id"], "--name", "other", *url]) == 0
    assert client.job("other").labels["parent"] == new["id"]
    assert job.refresh().state == "queued"


def test_a_clone_runs_no_code_of_another_user_here(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[object] = []

    def planned_memory(*given: object) -> None:
        ran.append(given)
        raise DryRunUnavailable("A dry run needs more time.")

    monkeypatch.setattr(module_plan, "planned_memory", planned_memory)
    monkeypatch.setenv("SHARDYARD_DRY_RUN_S", "60")
    model = {"import": "net:make", "code": str(tmp_path)}
    train = {"model": model, "steps": 2, "global_batch": 8, "data": {"seq_len": 64}}
    job = client.submit({"name": "own", "train": train}, plan_s=0)
    assert run(["clone", "own", "train.steps=3", "--url", client.url]) == 0
    assert client.clone(job.id, set={"train.steps": 4}).spec["train"]["steps"] == 4
    assert ran == []
    assert client.submit({"name": "mine", "train": train}).name == "mine" and len(ran) == 1


def test_a_clone_keeps_the_present_layout(client: Client, spec: str) -> None:
    job = client.submit(spec).reshard({"tensor": 2})
    assert client.submitted_spec(job.id).layout_changed
    assert run(["clone", "tiny", "--url", client.url]) == 0
    clone = client.job("tiny-clone")
    assert clone.layout == job.layout == "tensor 2"
    assert "# the smallest" in (client.submitted_spec(clone.id).text or "")


def test_without_a_text_the_spec_itself_is_cloned(client: Client) -> None:
    long = {**SPEC, "labels": {"team": "a"}, "resources": {"env": {f"V{n}": "x" * 4000 for n in range(20)}}}
    job = client.submit(long)
    assert client.submitted_spec(job.id).text is None
    assert run(["clone", "tiny", "train.seed=3", "--url", client.url]) == 0
    clone = client.job("tiny-clone")
    assert {**clone.spec["train"], "seed": 0} == job.spec["train"] and clone.spec["resources"] == job.spec["resources"]


@pytest.mark.parametrize(
    ("script", "status", "jobs", "says"),
    [
        ("sed -i 's/steps: 30/steps: 40/' \"$1\"", 0, 2, "shardyard watch"),
        ("true", 1, 1, "saved nothing"),
        ("sed -i 's/steps: 30/stps: 40/' \"$1\"", 1, 1, "Your text is kept. Submit it with: shardyard submit"),
        ("printf 'code: {dir: src' >> \"$1\"", 1, 1, "Its relative paths then count from"),
    ],
)
def test_an_editor_may_change_the_text(  # noqa: PLR0917
    client: Client,
    spec: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    status: int,
    jobs: int,
    says: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor(tmp_path, script))
    client.submit(spec)
    assert run(["clone", "tiny", "train.steps=30", "--edit", "--url", client.url]) == status
    assert says in capsys.readouterr().err
    found = client.jobs().items
    assert len(found) == jobs
    assert bool([*tmp_path.glob("shardyard-*")]) is says.startswith(("Your text", "Its relative"))
    if jobs == 2:
        assert found[0].spec["train"]["steps"] == 40
        assert "# the smallest" in (client.submitted_spec(found[0].id).text or "")


def test_an_editor_that_is_not_there_is_named(
    client: Client, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("VISUAL", "/nowhere/editor")
    client.submit(spec)
    assert run(["clone", "tiny", "--edit", "--url", client.url]) == 1
    assert "/nowhere/editor" in capsys.readouterr().err
    assert not [*tmp_path.glob("shardyard-*")]


def test_submit_takes_values(client: Client, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    url: list[Any] = ["--url", client.url]
    assert run(["submit", spec, "train.steps=7", "name=other", *url]) == 0
    assert client.job("other").spec["train"]["steps"] == 7
    assert "# the smallest" in (client.submitted_spec("other").text or "")
    assert run(["submit", spec, "train.steps=7", "--dry-run", *url]) == 0
    assert f"shardyard submit {spec} train.steps=7" in capsys.readouterr().err
    assert run(["submit", spec, "train.data[3]=7", *url]) == 1
    assert "no place for 'train.data[3]'" in capsys.readouterr().err
    assert run(["submit", spec, "steps", *url]) == 1
    assert "no KEY=VALUE" in capsys.readouterr().err
