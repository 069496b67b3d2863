"""A plan belongs to what it was made for: what changes memory makes it another spec's, what does not leaves it."""

from typing import Any

import pytest

from shardyard.workers.own_plan import digest, kept, plan_of, present
from shardyard.workers.planned_memory import HeldBytes, PlannedMemory
from shardyard.workers.spec import TrainSpec

GIVEN: dict[str, Any] = {
    "model": {"import": "net:make", "code": "/code", "args": {"width": 8}},
    "layout": {"data": 2, "zero": 1},
    "steps": 10,
    "global_batch": 8,
}


def spec(**changes: Any) -> TrainSpec:
    return TrainSpec.model_validate({**GIVEN, **changes})


def planned(train: TrainSpec, **at_peak: int) -> TrainSpec:
    found = PlannedMemory(
        of=digest(train), ranks=train.layout.world_size, parameters=5, at_peak=HeldBytes(**at_peak), host_bytes=3
    )
    return train.model_copy(update={"planned": found})


@pytest.mark.parametrize(
    "change",
    [
        {"model": {**GIVEN["model"], "args": {"width": 9}}},
        {"layout": {"data": 2, "zero": 2}},
        {"global_batch": 16},
        {"data": {"seq_len": 64}},
        {"precision": "bf16"},
        {"recompute": "full"},
        {"offload": {"optimizer": 1}},
        {"optimizer": {"name": "sgd"}},
        {"overlap": {"prefetch": 1}},
        {"model": {"preset": "nano"}},
    ],
    ids=str,
)
def test_what_changes_memory_makes_it_the_plan_of_another_spec(change: dict[str, Any]) -> None:
    changed = spec(**change)
    assert digest(changed) != digest(spec())
    assert kept(changed.model_copy(update={"planned": planned(spec()).planned})).planned is None


@pytest.mark.parametrize(
    "change",
    [{"steps": 99}, {"optimizer": {"lr": 0.1}}, {"resume_from": "job-1"}, {"seed": 3}, {"checkpoint": {"every": 5}}],
    ids=str,
)
def test_what_does_not_change_memory_leaves_it(change: dict[str, Any]) -> None:
    changed = spec(**change).model_copy(update={"planned": planned(spec()).planned})
    assert kept(changed) is changed


def test_a_stored_spec_has_the_digest_of_the_one_that_was_sent() -> None:
    sent = planned(spec(recompute="every-2", precision="bf16"))
    stored = TrainSpec.model_validate(sent.model_dump(mode="json", by_alias=True), strict=True)
    assert digest(stored) == digest(sent) and kept(stored).planned == sent.planned


def test_a_model_with_formulas_keeps_no_plan() -> None:
    nano = spec(model={"preset": "nano"})
    assert kept(planned(nano)).planned is None


def test_an_elastic_job_keeps_its_plan_on_every_degree_and_shows_it_on_one() -> None:
    train = planned(spec(layout={"data": {"min": 1, "max": 4}}))
    assert train.planned is not None and train.planned.ranks == 4
    smaller = train.model_copy(update={"layout": train.layout.model_copy(update={"data": 2})})
    assert kept(smaller).planned == train.planned
    assert present(train) == train.planned and present(smaller) is None


def test_its_bytes_are_a_plan_of_a_dry_run() -> None:
    found = planned(spec(), parameters=40, activations=2).planned
    assert found is not None
    gpu, cpu = plan_of(found, "cuda"), plan_of(found, "cpu")
    assert gpu.by_kind == {"parameters": 40, "activations": 2} and gpu.peak == 42 and gpu.host == {"tensors": 3}
    assert gpu.source == "dry run" and len(cpu.notes) == len(gpu.notes) + 1
