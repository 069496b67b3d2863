"""What a job asks of the queue is the same whether it is read from its spec or from its row."""

from dataclasses import replace
from typing import Any

import pytest

from shardyard.service.jobs import queued_job
from shardyard.service.spec import CommandSpec, JobSpec

TRAIN = {"steps": 1, "global_batch": 4, "layout": {"data": 4, "tensor": 2}}


@pytest.mark.parametrize(
    "resources",
    [{}, {"gpu": "H100", "within": "domain", "cpus_per_gpu": 4}, {"gpu": "mixed", "within": "zone"}],
    ids=["nothing", "all", "mixed"],
)
def test_a_spec_and_its_row_ask_for_the_same(resources: dict[str, Any]) -> None:
    spec = JobSpec.model_validate({"name": "a", "train": TRAIN, "resources": resources})
    job = queued_job.waiting(spec)
    assert (job.id, job.world_size, job.tensor) == ("", 8, 2)
    stored = spec.model_dump(mode="json", by_alias=True)
    assert job == replace(job, **queued_job.wants(stored))
    assert job.model == ("H100" if resources.get("gpu") == "H100" else "")


@pytest.mark.parametrize(("env", "image"), [({"image": "nemo"}, "nemo"), ({"python": ["einops"]}, ""), (None, "")])
def test_a_commands_image_is_that_of_its_environment(env: dict[str, Any] | None, image: str) -> None:
    spec = CommandSpec.model_validate({"name": "a", "command": ["x"], "env": env})
    job = queued_job.waiting(spec)
    assert job.image == image
    assert job == replace(job, **queued_job.wants(spec.model_dump(mode="json", by_alias=True)))


def test_a_row_of_an_earlier_version_asks_for_nothing() -> None:
    assert queued_job.wants({"train": TRAIN}) == {"gpu": "", "within": None, "cpus": 0.0, "image": ""}
