"""`shardyard models`, and the commands that take a version where they take a checkpoint."""

import hashlib
import json
from pathlib import Path

import pytest
from harness.stored_checkpoints import FILE, save_checkpoint

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC, Gang, Plane, running_job


@pytest.fixture
def job(plane: Plane, client: Client) -> str:
    """A job with a checkpoint of step 10, and a file that its program logged."""
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.emit(("checkpoint", save_checkpoint(Path(plane.settings.storage) / job, 10, b"weights")))
    digest = hashlib.sha256(b"words").hexdigest()
    folder = Path(plane.settings.artifacts(job))
    folder.mkdir(parents=True)
    (folder / digest).write_bytes(b"words")
    logged = {"name": "run/[words].txt", "bytes": 5, "sha256": digest}
    gang.emit(("artifacts", {"rank": 0, "generation": 1, "artifacts": [logged]}))
    return job


def test_versions_are_created_listed_named_taken_home_and_deleted(
    client: Client, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", client.url]
    assert run(["models", *url]) == 0
    assert "--create JOB@STEP" in capsys.readouterr().err
    assert run(["models", "nano", "--create", f"{job}@10", "--notes", "rhymes", "--set-alias", "best", *url]) == 0
    printed = capsys.readouterr()
    assert f"{job}@10" in printed.out and "rhymes" in printed.out and "models/nano@1" in printed.err
    assert f"shardyard checkpoints {job} --pin 10" in " ".join(printed.err.split())
    assert run(["models", "nano", "--create", job, "--artifact", "run/[words].txt", *url]) == 0
    capsys.readouterr()
    assert run(["models", *url]) == 0
    assert "best → 1" in capsys.readouterr().out
    assert run(["models", "nano", *url]) == 0
    shown = capsys.readouterr().out
    assert "not pinned yet" in shown and f"run/[words].txt of {job}" in shown
    assert run(["models", "nano@best", "--download", str(tmp_path / "it"), *url]) == 0
    assert run(["models", "nano@2", "--download", str(tmp_path / "it"), *url]) == 0
    assert (tmp_path / "it" / FILE).read_bytes() == b"weights"
    assert (tmp_path / "it" / "[words].txt").read_bytes() == b"words"
    capsys.readouterr()
    assert run(["models", "nano@2", "--set-alias", "best", "--expected", "2", *url]) == 1
    assert "names version 1" in capsys.readouterr().err
    assert run(["models", "nano@best", "--remove-alias", "best", *url]) == 0
    assert run(["models", "nano@1", "--delete", "1", "--json", *url]) == 0
    capsys.readouterr()
    assert run(["models", "nano", "--delete", "1", "--json", *url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert ([one["number"] for one in found["items"]], found["aliases"]) == ([2], [])


WRONG = [
    (["models", "--create", "x"], "need the name"),
    (["models", "nano", "--notes", "x"], "need --create"),
    (["models", "nano", "--create", "x@y"], "JOB@STEP"),
    (["models", "lost"], "There is no model"),
    (["export", "models/lost", "out"], "A folder of that name is ./models/lost."),
    (["sample", "models/lost"], "There is no model"),
]


def test_what_is_wrong_is_said(
    client: Client, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "lost").mkdir(parents=True)
    (tmp_path / "models" / "lost" / "config.json").write_text("{}")  # a folder of the name of a model
    for arguments, says in WRONG:
        assert run([*arguments, "--url", client.url]) == 1
        assert says in " ".join(capsys.readouterr().err.replace("│", " ").split())
    client.create_version("nano", job, artifact="run/[words].txt")
    assert run(["export", "models/nano", "out", "--url", client.url]) == 1
    assert "no checkpoint" in capsys.readouterr().err


@pytest.mark.full
def test_a_version_whose_checkpoint_is_gone_is_not_exported(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if its files are still there: they may be those of another save."""
    job, gang = running_job(plane, client)
    saved = save_checkpoint(Path(plane.settings.storage) / job, 10)
    gang.emit(("checkpoint", {**saved, "kept": [10]}))
    client.create_version("nano", job, step=10)
    gang.emit(("checkpoint", {**saved, "step": 20, "kept": [20]}))
    assert run(["export", "models/nano@1", "out", "--url", client.url]) == 1
    assert "nano@1 was deleted" in " ".join(capsys.readouterr().err.split())
    assert run(["models", "nano@1", "--download", "out", "--url", client.url]) == 1
    assert "Name another version" in " ".join(capsys.readouterr().err.split())


def test_notes_and_names_are_text_and_no_markup(client: Client, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = ["--url", client.url]
    assert run(["artifacts", job, *url]) == 0
    assert "run/[words].txt" in capsys.readouterr().out
    client.create_version("nano", job, step=10, notes="[/] of [bold]two\nlines")
    assert run(["models", "nano", *url]) == 0
    assert "[/] of [bold]two" in capsys.readouterr().out
    assert run(["models", "nano@1", *url]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["  [/] of [bold]two", "  lines"]


@pytest.mark.full
def test_an_export_of_a_version_is_one_of_its_checkpoint(
    client: Client, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_version("nano", job, step=10)
    assert run(["export", "models/nano@1", str(tmp_path / "out"), "--url", client.url]) == 1
    assert "architecture" in capsys.readouterr().err  # it was read: it holds no model
