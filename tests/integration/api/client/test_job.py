"""A job handle: it reads the job again at each call."""

from harness.patience import PATIENCE_S

from shardyard.api.client import Client

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


def test_a_job_is_edited_and_keeps_what_is_not_named(client: Client) -> None:
    job = client.submit(SPEC)
    assert job.edit(name="other", notes="One.\nTwo.").labels == SPEC["labels"]
    edited = client.edit("other", labels={})
    assert (edited.id, edited.name, edited.labels, edited.notes) == (job.id, "other", {}, "One.\nTwo.")
