"""`compare` and `checkpoints` against a served API and real checkpoints on a disk."""

import json
from pathlib import Path

import pytest
from harness.stored_checkpoints import flip_checkpoint_bit, save_checkpoint

from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.workers.storage.local_folder import LocalFolder

from ...conftest import SPEC, Gang, Plane

pytestmark = pytest.mark.usefixtures("asks_the_plane")


def trained(plane: Plane, client: Client, name: str, steps: int, **layout: int) -> str:
    """A job that has come to this step."""
    job = client.submit({**SPEC, "name": name, "train": {**SPEC["train"], "layout": layout}})
    gang = Gang(plane, job.id)
    gang.state("running")
    gang.steps(1, steps)
    if steps == 20:
        gang.succeed()
    return job.id


def test_compare_shows_numbers_at_one_step_and_what_differs(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part = trained(plane, client, "whole", 20, data=2), trained(plane, client, "part", 10, tensor=2)
    assert run(["compare", "whole", part]) == 0
    lines = capsys.readouterr().out.splitlines()

    def column(name: str) -> list[str]:
        (line,) = (line for line in lines if line.startswith(f"{name} "))
        return line.removeprefix(name).split()

    assert column("loss at step 10") == ["0.5000", "0.5000", "(+0,", "+0.0%)"]
    assert column("last loss") == ["0.2500", "0.5000", "(+0.25,", "+100.0%)"]
    assert column("validation loss") == ["0.5000"]
    assert column("train.layout.tensor") == ["1", "2"]
    assert column("train.layout.data") == ["2", "1"]
    assert run(["compare", "whole", part, "--at-step", "15", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["at_step"] == 15
    assert [job["id"] for job in body["jobs"]] == [whole, part]
    assert body["jobs"][0]["at"]["loss"] == pytest.approx(5 / 15)
    assert body["jobs"][1]["at"] is None
    assert body["spec"]["name"] == ["whole", "part"]


def test_compare_of_equal_jobs_and_of_too_few(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [client.submit(SPEC).id for _ in range(2)]
    assert run(["compare", *ids]) == 0
    assert "specs are the same" in capsys.readouterr().err
    assert run(["compare", ids[0]]) == 1
    assert "2 to 16 jobs" in capsys.readouterr().err


@pytest.fixture
def saved(plane: Plane, client: Client, tmp_path: Path) -> tuple[str, Path]:
    """A job that saved three checkpoints, of which the first was deleted and the second corrupt; and their folder."""
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    root = tmp_path / "checkpoints" / job.id
    gang.emit(*(("checkpoint", save_checkpoint(root, step)) for step in (10, 20, 30)))
    LocalFolder(str(root / "step-00000010")).remove_all()
    flip_checkpoint_bit(root, 20)
    return job.id, root


def test_checkpoints_are_listed_newest_first(
    saved: tuple[str, Path], client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    job, root = saved
    assert run(["checkpoints", job]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(row[0], row[-2], row[-1]) for row in rows] == [
        ("30", "present", str(root / "step-00000030")),
        ("20", "present", str(root / "step-00000020")),
        ("10", "deleted", str(root / "step-00000010")),
    ]
    assert run(["checkpoints", SPEC["name"], "--limit", "2"]) == 0
    hint = capsys.readouterr().err
    page = client.checkpoints(job, limit=2)
    assert f"shardyard checkpoints {job} --before {page.next}" in hint
    assert [one.step for one in client.checkpoints(job, before=page.next).items] == [10]


def test_verify_finds_the_corrupt_one(saved: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    job, _ = saved
    assert run(["checkpoints", job, "--verify"]) == 1
    captured = capsys.readouterr()
    assert [line.split()[-2] for line in captured.out.splitlines()[1:]] == ["valid", "corrupt", "deleted"]
    assert "does not match its checksum" in captured.err
    assert run(["checkpoints", job, "--verify", "--json", "--limit", "1"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["items"]
    assert (only["step"], only["verdict"], only["message"]) == (30, "valid", None)


def test_storage_that_cannot_be_seen_from_here_is_no_damage(
    plane: Plane, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = client.submit(SPEC)
    elsewhere = {"step": 5}
    paths = [str(tmp_path / "nowhere" / "step-00000005"), "s3://bucket/x/step-00000005"]
    Gang(plane, job.id).emit(*(("checkpoint", {**elsewhere, "path": path}) for path in paths))
    for verify, verdict in ([], "present"), (["--verify"], "unknown"):
        assert run(["checkpoints", job.id, "--json", *verify]) == 0
        assert [item["verdict"] for item in json.loads(capsys.readouterr().out)["items"]] == [verdict, verdict]
