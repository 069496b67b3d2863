"""A measured peak beside its plan: near it nothing is said, else by how much and on which side."""

import pytest

from shardyard.strategies.cost.plan import plan
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.own_plan import digest
from shardyard.workers.planned_memory import HeldBytes, PlannedMemory
from shardyard.workers.planned_peak import incident_text, off_plan
from shardyard.workers.spec import TrainSpec

GIB = 1 << 30


@pytest.mark.parametrize(
    ("peak", "words"),
    [
        (104 * GIB, None),
        (96 * GIB, None),
        (106 * GIB, "106.0 GiB, 6% above the 100.0 GiB"),
        (88 * GIB, "88.0 GiB, 12% below the 100.0 GiB"),
    ],
)
def test_more_than_5_percent_is_said(peak: int, words: str | None) -> None:
    found = off_plan(100 * GIB, peak)
    assert found is None if words is None else words in (found or "")


def spec(preset: str) -> TrainSpec:
    model = {"preset": preset, "vocab": 32_000}
    return TrainSpec.model_validate({"model": model, "data": {"seq_len": 1024}, "steps": 2, "global_batch": 8})


@pytest.mark.parametrize(
    ("preset", "share", "words"),
    [("1.3B", 1.2, "20% above"), ("1.3B", 0.8, "20% below"), ("1.3B", 1.04, None), ("nano", 1.2, None)],
)
def test_an_incident_is_of_many_bytes(preset: str, share: float, words: str | None) -> None:
    train = spec(preset)
    architecture = train.architecture(32_000)
    assert architecture is not None
    planned = plan(planned_setting(train, architecture, "cuda")).peak
    found = incident_text(train, architecture, round(share * planned))
    assert found is None if words is None else words in (found or "")


def test_an_incident_knows_the_kernels_of_the_gpu() -> None:
    """A peak that is near the plan of an old GPU, whose attention repeats key/value heads, and above that of a new one."""
    model = {"preset": "1.3B", "kv_heads": 2, "vocab": 32_000}
    given = {"model": model, "data": {"seq_len": 1024}, "precision": "fp16", "steps": 2, "global_batch": 16}
    train = TrainSpec.model_validate(given)
    architecture = train.architecture(32_000)
    assert architecture is not None
    peak = plan(planned_setting(train, architecture, "cuda", (7, 5))).peak
    assert incident_text(train, architecture, peak, (7, 5)) is None
    assert "above" in (incident_text(train, architecture, peak, (8, 0)) or "")


def test_a_module_of_the_users_own_has_the_plan_that_came_with_its_spec() -> None:
    train = TrainSpec.model_validate({"model": {"import": "a:b"}, "steps": 2, "global_batch": 8})
    assert incident_text(train, None, GIB) is None
    found = PlannedMemory(of=digest(train), ranks=1, parameters=1, at_peak=HeldBytes(parameters=10 * GIB))
    own = train.model_copy(update={"planned": found})
    assert "20% above the 10.0 GiB" in (incident_text(own, None, 12 * GIB) or "")
    assert incident_text(own, None, 10 * GIB) is None
    on_more = own.model_copy(update={"layout": own.layout.model_copy(update={"data": 2})})
    assert incident_text(on_more, None, 12 * GIB) is None, "it was made for another number of ranks"
    empty = own.model_copy(update={"planned": found.model_copy(update={"at_peak": HeldBytes()})})
    assert incident_text(empty, None, 12 * GIB) is None
