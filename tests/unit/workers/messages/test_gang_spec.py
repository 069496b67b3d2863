"""The gang's spec crosses from the dispatcher to the supervisor as JSON, and only JSON that fits is read."""

import dataclasses
import json
from typing import Any

import pytest

from shardyard.workers.messages.gang_spec import GangSpec, LossSpikeLimits, StragglerLimits

FULL = GangSpec(
    name="shardyard-a-1",
    run={"train": {"steps": 3}},
    world_size=4,
    tensor=2,
    device="cuda",
    max_repairs=5,
    hang_timeout_s=60.0,
    straggler=StragglerLimits(factor=2.0),
    loss_spike=LossSpikeLimits(window=50),
    avoided=("node-1", "node-2"),
    gpu="H100",
    within="domain",
    image="nemo",
    other_images=("dev",),
    neighbours=(4, 2),
    elastic_grace_s=10.0,
    spares=1,
    cpus_per_rank=0.5,
    cpus_per_gpu=6.0,
    env={"NCCL_DEBUG": "INFO"},
    secrets=True,
    entry="entries:work",
    sample_s=5.0,
    timeout_s=30.0,
    lease_s=5.0,
    own_clocks=3,
)


def test_json_keeps_every_field() -> None:
    for field in dataclasses.fields(GangSpec):  # a field that is left out would not be compared
        assert field.default is dataclasses.MISSING or getattr(FULL, field.name) != field.default
    assert GangSpec.from_json(json.loads(json.dumps(FULL.to_json()))) == FULL
    assert GangSpec("a", {}, 1).to_json() == {"name": "a", "run": {}, "world_size": 1}


def test_a_spec_of_an_earlier_version_is_read() -> None:
    assert GangSpec.from_json(FULL.to_json() | {"submitted_at": 1.5e9}) == FULL


@pytest.mark.parametrize(
    "wrong", [{"repairs": 1}, {"world_size": "4"}, {"straggler": {"speed": 1}}, {"avoided": "node-1"}]
)
def test_json_that_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        GangSpec.from_json(FULL.to_json() | wrong)


def test_a_spec_without_a_world_size_is_refused() -> None:
    with pytest.raises(ValueError, match="world_size"):
        GangSpec.from_json({"name": "a", "run": {}})
