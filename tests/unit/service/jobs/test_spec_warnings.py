"""Options without effect are named; others are not."""

from typing import Any

import pytest

from shardyard.service.jobs.spec_warnings import warnings
from shardyard.service.spec import JobSpec
from shardyard.workers.own_plan import digest

ASYNC = {"servers": 1, "mode": "async"}
STALE = {"data": 2, "parameter_server": {"servers": 1, "mode": "stale", "bound": 2}}


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "train": {"steps": 10, "global_batch": 4, **fields}})


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"schedule": {"warmup": 11}}, "train.schedule.warmup", "longer than the run of 10"),
        ({"schedule": {"warmup": 10}}, "train.schedule.warmup", "as long as the run of 10"),
        ({"schedule": {"name": "constant", "min_ratio": 0.5}}, "train.schedule.min_ratio", "ignores"),
        ({"layout": {"schedule": "zbv"}}, "train.layout.schedule", "without a pipeline"),
        ({"overlap": {"tensor_chunks": 2}}, "train.overlap.tensor_chunks", "without tensor parallelism"),
        ({"layout": {"pipeline": {"stages": 1, "split": "profile"}}}, "train.layout.pipeline", "without a pipeline"),
        ({"layout": {"schedule": "2bw", "pipeline": 2}}, "train.layout.schedule", "the optimisation changes"),
        ({"layout": {"schedule": "pipedream", "pipeline": 3}}, "train.layout.schedule", "up to 2 steps after"),
        (
            {"layout": {"data": 4, "zero": 3, "zero_plus_plus": {"weights": "int8", "gradients": "int4"}}},
            "train.layout.zero_plus_plus",
            "rounds weights and gradients",
        ),
        ({"layout": {"schedule": "pipedream", "pipeline": 2}}, "train.layout.schedule", "up to one step after"),
        ({"layout": {"schedule": "pipedream", "pipeline": 4}}, "train.layout.schedule", "pass and 4 backward passes"),
        (
            {"layout": {"schedule": "pipedream", "pipeline": 4}, "optimizer": {"clip_norm": None}},
            "train.layout.schedule",
            "the optimisation changes.",
        ),
        (
            {"layout": {"schedule": "2bw", "pipeline": 4}, "optimizer": {"clip_norm": None}, "model": {"tied": True}},
            "train.layout.schedule",
            "which has a bubble of 3 backward passes.",
        ),
        (
            {
                "layout": {"schedule": "pipedream", "pipeline": 2},
                "optimizer": {"clip_norm": None},
                "model": {"tied": True},
            },
            "train.layout.schedule",
            "which has a bubble of a backward pass.",
        ),
        (
            {"layout": {"schedule": "2bw", "pipeline": 4}, "model": {"tied": True}},
            "train.layout.schedule",
            "the optimisation changes.",
        ),
        (
            {"layout": {"schedule": "pipedream", "pipeline": 4}, "model": {"tied": True}},
            "train.layout.schedule",
            "1f1b is faster.",
        ),
        (
            {"layout": {"schedule": "pipedream", "pipeline": 3, "vertical_sync": True}},
            "train.layout.schedule",
            "each gradient 2 steps after",
        ),
        (
            {"layout": STALE},
            "train.layout.parameter_server",
            "2 updates in a step, each by the gradients of one worker, up to 5",
        ),
        ({"layout": {**STALE, "parameter_server": ASYNC}}, "train.layout.parameter_server", "up to 2,001 updates"),
        (
            {"layout": {**STALE, "data": {"min": 1, "max": 2}}},
            "train.layout.parameter_server",
            "1 to 2 updates in a step, each by the gradients of one worker, up to 5",
        ),
        (
            {"layout": {**STALE, "data": 1}, "replica_check": {"every": 2}},
            "train.replica_check.every",
            "never compared",
        ),
        ({"eval": {"every": 11}}, "train.eval.every", "only at the end"),
        ({"checkpoint": {"every": 11}}, "train.checkpoint.every", "before the end"),
        ({"snapshot": {"every": 11}}, "train.snapshot.every", "no snapshot"),
    ],
)
def test_what_has_no_effect(fields: dict[str, Any], field: str, says: str) -> None:
    [found] = warnings(spec(**fields))
    assert found.field == field and found.remedy
    assert found.message.endswith(says) if says.endswith(".") else says in found.message


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"schedule": {"warmup": 9}},
        {"steps": 1, "schedule": {"warmup": 1}},
        {"layout": {"schedule": "gpipe", "pipeline": 2, "data": 1}},
        {"layout": {"tensor": 2}, "overlap": {"tensor_chunks": 2}},
        {"layout": {"pipeline": {"stages": 2, "split": "profile"}}},
        {"layout": {"data": 4, "zero": 3, "zero_plus_plus": {"secondary": 2}}},
        {"layout": {**STALE, "data": 1}},
        {"layout": {"data": 2, "parameter_server": {"servers": 1}}, "replica_check": {"every": 2}},
        {"eval": {"every": 10}, "checkpoint": {"every": 10}, "snapshot": {"every": 0}},
    ],
)
def test_what_has_one(fields: dict[str, Any]) -> None:
    assert warnings(spec(**fields)) == []


def test_a_plan_of_another_spec_is_left_out_and_said() -> None:
    model = {"import": "net:make"}
    planned = {"of": digest(spec(model=model).train), "ranks": 1, "parameters": 1, "at_peak": {}}
    assert warnings(spec(model=model, planned=planned)) == []
    for other in (spec(model=model, planned=planned, recompute="full"), spec(planned=planned)):
        [found] = warnings(other)
        assert found.field == "train.planned" and "another spec" in found.message
