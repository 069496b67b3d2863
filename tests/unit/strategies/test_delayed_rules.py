"""What 2BW is not proved with is refused, with the field and a remedy that works; the rest of it is not."""

from typing import Any

import pytest

from shardyard.strategies.layout import Layout, Refusal
from shardyard.workers.spec import TrainSpec

BASE: dict[str, Any] = {
    "data": {"seq_len": 32},
    "global_batch": 16,
    "steps": 3,
    "model": {"family": "llama", "preset": "nano"},
}


def _checked(layout: dict[str, Any], **changes: Any) -> TrainSpec:
    spec = TrainSpec.model_validate({**BASE, "layout": {"pipeline": 2, "schedule": "2bw", **layout}, **changes})
    spec.check()
    return spec


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
    layout: dict[str, Any], changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refusal) as caught:
        _checked(layout, **changes)
    assert caught.value.field == field
    assert caught.value.remedy.endswith("or set layout.schedule to 1f1b.")
    _checked({**layout, "schedule": "1f1b"}, **changes)


@pytest.mark.parametrize("layout", [{}, {"data": 2}, {"pipeline": 4}])
@pytest.mark.parametrize(
    "changes", [{}, {"precision": "bf16"}, {"recompute": "full"}, {"recompute": "selective"}], ids=str
)
def test_stages_and_replicas_are_not_refused(layout: dict[str, Any], changes: dict[str, Any]) -> None:
    assert _checked(layout, **changes).layout.versions == 2


@pytest.mark.parametrize(("pipeline", "least"), [(2, 2), (4, 6)])
def test_no_pass_is_of_the_batch_after_the_next_one(pipeline: int, least: int) -> None:
    layout = Layout(pipeline=pipeline, schedule="2bw", micro_batch=1)
    assert layout.batch(least).microbatches == least
    with pytest.raises(Refusal, match=f"at least {least}"):
        layout.batch(least - 1)


def test_without_a_pipeline_there_is_one_version() -> None:
    assert Layout(schedule="2bw").versions == 1
