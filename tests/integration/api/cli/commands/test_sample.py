"""`shardyard sample`: of a job, of a step, of folders; what cannot be is said with what helps."""

import json
from pathlib import Path

import pytest
from harness.stored_checkpoints import checkpoint_path, save_checkpoint, save_model_checkpoint

from shardyard.api.cli.commands.jobs import ended
from shardyard.api.cli.main import run
from shardyard.api.cli.terminal.screen import Screen
from shardyard.api.client import Client
from shardyard.workers.huggingface.export import export
from shardyard.workers.storage.open_folder import folder_at

from ...conftest import SPEC, Gang, Plane

pytestmark = pytest.mark.usefixtures("asks_the_plane")


@pytest.fixture
def saved(plane: Plane, client: Client, tmp_path: Path) -> tuple[str, Path]:
    """A job that has reported three checkpoints: of a model, of another step of it, and of one without a model."""
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("running")
    saved = [
        save_model_checkpoint(tmp_path / job, 10),
        save_model_checkpoint(tmp_path / job, 20),
        save_checkpoint(tmp_path / job, 30),
    ]
    gang.emit(*(("checkpoint", one) for one in saved))
    return job, tmp_path / job


def test_a_checkpoint_and_its_export_write_the_same(
    saved: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    job, root = saved
    export(folder_at(str(checkpoint_path(root, 20))), folder_at(str(root / "out")))
    (root / "step-00000030" / "manifest.json").unlink()
    how = ["--prompt", "def ", "--tokens", "12", "--seed", "3", "--json"]
    said = []
    for model in (f"{job}@20", str(checkpoint_path(root, 20)), str(root), str(root / "out"), f"{job}@10"):
        assert run(["sample", model, *how]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert [one["model"].removeprefix(f"{root}/") for one in said] == [
        *["step-00000020"] * 3,
        "out",
        "step-00000010",
    ]
    assert len({one["text"] for one in said[:4]}) == 1 and said[4]["text"] != said[0]["text"]
    assert run(["sample", f"{job}@20", *how[:-1]]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("def ") and "step-00000020 writes:" in printed.err.replace("\n", "")


def test_what_cannot_be_sampled_is_said(
    saved: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, _ = saved
    for arguments, expected in (
        (["sample", job], "module of your own"),
        (["sample", f"{job}@11"], f"shardyard checkpoints {job}"),
        (["sample", "absent"], "shardyard list"),
        (["sample", str(tmp_path / "nowhere")], "holds no complete checkpoint"),
        (["sample", f"{job}@10", "--tokenizer", str(tmp_path / "none.json")], "--tokenizer"),
        (["sample", f"{job}@10", "--temperature", "-1"], "shardyard sample --help"),
        (["sample", "~no-such-user/x"], "no such user"),
        (["sample", f"{job}@10", "--tokens", "0"], "shardyard sample --help"),
    ):
        assert run(arguments) == 1, arguments
        assert expected in capsys.readouterr().err, arguments


def test_a_job_that_ended_well_says_what_to_do_next(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    other = client.submit(SPEC).id
    gang = Gang(plane, other)
    gang.state("running")
    gang.steps(1, 20)
    gang.succeed()
    done = client.job(other)
    assert done.summary is not None
    ended(Screen(), done)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2:] == [
        f"See its page with: shardyard open {done.id}",
        f"Generate text with: shardyard sample {done.id}",
    ]
    ended(Screen(), done, alone=True)
    hints = "".join(capsys.readouterr().err.splitlines()[-2:])
    assert f"shardyard up --detach; shardyard open {done.id}" in hints
    assert f"shardyard sample {done.summary.checkpoint}" in hints
