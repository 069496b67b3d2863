"""A job handle: it reads the job again at each call."""

from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.client import ApiError, Client

from ..conftest import SPEC, Gang, Plane


def test_a_submitted_job_can_be_waited_for_and_asked(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    gang.steps(1, 20)
    gang.log(0, 1, "hello")
    gang.emit(("checkpoint", {"step": 20, "path": "/x/step-00000020", "bytes": 9, "seconds": 0.1, "held_s": 0.0}))
    gang.succeed()
    ended = job.wait(PATIENCE_S)
    assert (job.state, ended.state, job.refresh().state) == ("queued", "succeeded", "succeeded")
    assert [event.data["step"] for event in ended.events() if event.kind == "step"] == list(range(1, 21))
    assert [line.text for line in ended.logs().lines] == ["hello"]
    assert [one.path for one in ended.checkpoints().items] == ["/x/step-00000020"]
    assert ended.incidents().items == []
    assert ended.model_dump(mode="json") == client.job(job.id).model_dump(mode="json")


def test_a_job_is_cloned_with_other_values(client: Client, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: tiny  # the smallest\ntrain: {steps: 20, global_batch: 8, layout: {data: 2}}\n"
    )
    job = client.submit(tmp_path / "job.yaml")
    made = job.clone()
    assert (made.name, made.state, made.labels) == ("tiny-clone", "queued", {"parent": job.id})
    assert made.spec["train"] == job.spec["train"]
    assert "# the smallest" in (client.submitted_spec(made.id).text or "")
    asked: dict[str, Any] = {
        "set": {"train.steps": 30, "labels.why": "longer"},
        "name": "longer",
        "idempotency_key": "k",
    }
    other = client.clone("tiny", **asked)
    assert (other.name, other.spec["train"]["steps"], other.labels["why"]) == ("longer", 30, "longer")
    assert client.clone("tiny", **asked).id == other.id
    with pytest.raises(ApiError, match="no place") as refused:
        job.clone(set={"train.layout[1]": 2})
    assert refused.value.errors[0].field == "train.layout[1]"
    with pytest.raises(ApiError) as refused:
        job.clone(set={"train.stps": 2})
    assert refused.value.code == "invalid_spec" and refused.value.errors[0].field == "train.stps"
    with pytest.raises(ApiError) as refused:
        client.clone("absent")
    assert refused.value.code == "job_not_found"


@pytest.mark.parametrize("happens", ["renamed", "resharded", "deleted", "newer"])
def test_a_key_gives_the_same_clone_whatever_has_become_of_the_old_job(client: Client, happens: str) -> None:
    job = client.submit(SPEC)
    asked: dict[str, Any] = {"set": {"train.steps": 30}, "idempotency_key": "k"}
    made = client.clone(job.name, **asked)
    match happens:
        case "renamed":
            job.edit(name="other")
        case "resharded":
            job.reshard({"tensor": 2})
        case "deleted":
            job.cancel()
            job.delete()
        case _:
            client.submit(SPEC)
    assert client.clone(job.name, **asked).id == made.id
    with pytest.raises(ApiError) as refused:
        client.clone(job.name, set={"train.steps": 40}, idempotency_key="k")
    assert refused.value.code == "idempotency_conflict"


def test_a_relative_path_in_a_clone_is_of_the_working_folder(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    job = client.submit({"name": "program", "command": ["true"], "cwd": "/"})
    asked: dict[str, Any] = {"set": {"cwd": "here"}, "idempotency_key": "k"}
    made = client.clone(job.id, **asked)
    assert made.spec["cwd"] == str(tmp_path / "here")
    assert client.clone(job.id, **asked).id == made.id


def test_a_job_is_edited_and_keeps_what_is_not_named(client: Client) -> None:
    job = client.submit(SPEC)
    assert job.edit(name="other", notes="One.\nTwo.").labels == SPEC["labels"]
    edited = client.edit("other", labels={})
    assert (edited.id, edited.name, edited.labels, edited.notes) == (job.id, "other", {}, "One.\nTwo.")
