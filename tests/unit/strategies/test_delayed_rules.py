"""What 2BW is not proved with is refused, with the field and a remedy that works; the rest of it is not."""

from typing import Any

import pytest

from shardyard.strategies.delayed_rules import alternates, versions_of
from shardyard.strategies.layout import Layout, Refusal
from shardyard.workers.spec import TrainSpec

BASE: dict[str, Any] = {
    "data": {"seq_len": 32},
    "global_batch": 16,
    "steps": 3,
    "model": {"family": "llama", "preset": "nano"},
}


SCHEDULES = pytest.mark.parametrize("schedule", ["2bw", "pipedream"])


def _checked(layout: dict[str, Any], **changes: Any) -> TrainSpec:
    spec = TrainSpec.model_validate({**BASE, "layout": {"pipeline": 2, **layout}, **changes})
    spec.check()
    return spec


@SCHEDULES
@pytest.mark.parametrize(
    ("layout", "changes", "field"),
    [
        ({"tensor": 2}, {}, "layout.tensor"),
        ({"context": 2}, {}, "layout.context"),
        ({"data": 2, "zero": 1}, {}, "layout.zero"),
        ({"data": 2, "expert": 2}, {"model": {"family": "moe", "preset": "nano"}}, "layout.expert"),
        ({}, {"model": {"family": "moe", "preset": "nano"}}, "model.family"),
        ({}, {"model": {"import": "mine:make"}}, "model.import"),
        ({}, {"offload": {"optimizer": 0.5}}, "offload.optimizer"),
        ({}, {"offload": {"activations": True}}, "offload.activations"),
        ({}, {"compile": True}, "compile"),
        ({}, {"precision": "fp16"}, "precision"),
        ({}, {"precision": "fp8"}, "precision"),
    ],
)
def test_refusals_name_the_field_and_a_schedule_that_works(
    layout: dict[str, Any], changes: dict[str, Any], field: str, schedule: str
) -> None:
    with pytest.raises(Refusal) as caught:
        _checked({**layout, "schedule": schedule}, **changes)
    assert caught.value.field == field
    assert caught.value.remedy.endswith("or set layout.schedule to 1f1b.")
    _checked({**layout, "schedule": "1f1b"}, **changes)


@SCHEDULES
@pytest.mark.parametrize("layout", [{}, {"data": 2}, {"pipeline": 4}])
@pytest.mark.parametrize(
    "changes", [{}, {"precision": "bf16"}, {"recompute": "full"}, {"recompute": "selective"}], ids=str
)
def test_stages_and_replicas_are_not_refused(layout: dict[str, Any], changes: dict[str, Any], schedule: str) -> None:
    assert _checked({**layout, "schedule": schedule}, **changes).layout.versions > 1


@pytest.mark.parametrize(("pipeline", "least"), [(2, 2), (4, 4)])
def test_two_versions_need_a_micro_batch_for_each_stage(pipeline: int, least: int) -> None:
    layout = Layout(pipeline=pipeline, schedule="2bw", micro_batch=1)
    assert layout.batch(least).microbatches == least
    with pytest.raises(Refusal, match=f"at least {least}"):
        layout.batch(least - 1)


@pytest.mark.parametrize(
    ("microbatches", "ends_apart", "expected"), [(4, False, True), (6, False, False), (6, True, True)]
)
def test_2bw_has_the_papers_order_where_ranks_end_a_step_apart_or_micro_batches_are_few(
    microbatches: int, ends_apart: bool, expected: bool
) -> None:
    assert alternates(Layout(pipeline=4, schedule="2bw"), microbatches, ends_apart) is expected
    assert not alternates(Layout(pipeline=4), microbatches, ends_apart)


def test_pipedream_has_one_micro_batch_in_a_step() -> None:
    layout = Layout(pipeline=4, schedule="pipedream")
    assert layout.batch(16).microbatches == 1
    with pytest.raises(Refusal, match="updates the weights after each micro-batch") as caught:
        layout.with_(micro_batch=4).batch(16)
    assert caught.value.field == "layout.micro_batch" and "[16]" in caught.value.remedy


@pytest.mark.parametrize(("schedule", "held"), [("1f1b", [1, 1, 1]), ("2bw", [2, 2, 2]), ("pipedream", [3, 2, 1])])
def test_each_stage_holds_its_versions(schedule: str, held: list[int]) -> None:
    layout = Layout.model_validate({"pipeline": 3, "schedule": schedule})
    assert [versions_of(layout, place) for place in range(3)] == held
    assert layout.versions == held[0]


def test_with_vertical_sync_each_stage_holds_all_versions() -> None:
    layout = Layout.model_validate({"pipeline": 3, "schedule": "pipedream", "vertical_sync": True})
    assert [versions_of(layout, place) for place in range(3)] == [3, 3, 3]
    assert versions_of(layout.with_(pipeline=1), 0) == 1


@pytest.mark.parametrize("schedule", ["2bw", "pipedream"])
def test_without_a_pipeline_there_is_one_version(schedule: str) -> None:
    layout = Layout.model_validate({"schedule": schedule})
    assert (layout.versions, versions_of(layout, 0)) == (1, 1)
