"""Every type of event reads and writes its JSON, refuses what is not it, and describes its fields."""

import math
import pickle
import subprocess
import sys

import pytest

from shardyard.workers.messages.event import (
    KINDS,
    BadEvent,
    EvalEvent,
    StepEvent,
    TraceEvent,
    json_schema,
    read,
    to_json,
)
from shardyard.workers.messages.rank_event import RANK_KINDS

STEP = StepEvent(
    step=3,
    loss=2.5,
    lr=1e-3,
    skipped=False,
    step_s=0.5,
    step_s_min=0.4,
    step_s_median=0.5,
    step_s_max=0.6,
    slowest_rank=1,
)
SPAN = (0, "forward", "a", 1.0, 2.0, None, 3)
TRACE = TraceEvent(
    id="t",
    rank=0,
    step=1,
    began=1.5,
    seconds=2.0,
    error_s=0.0,
    sums={"forward": 1.0},
    spans=(SPAN,),
    lanes=("training",),
    dropped=0,
    pipeline=None,
)


@pytest.mark.parametrize("event", [STEP, TRACE], ids=["step", "trace"])
def test_an_event_survives_json_and_pickle(event: StepEvent | TraceEvent) -> None:
    assert read(type(event), to_json(event)) == event
    assert pickle.loads(pickle.dumps(event)) == event


def test_json_has_no_defaults_and_no_numbers_that_are_not_finite() -> None:
    assert "grad_norm" not in to_json(STEP)
    assert to_json(EvalEvent(step=1, loss=math.nan, unigram_loss=3.0, tokens=8))["loss"] is None
    assert to_json(TRACE)["spans"] == [[0, "forward", "a", 1.0, 2.0, None, 3]]


def test_an_unknown_field_is_ignored() -> None:
    assert read(StepEvent, to_json(STEP) | {"mood": "good"}) == STEP


def test_a_wrong_field_is_named() -> None:
    with pytest.raises(BadEvent, match=r"'step', field 'step_s': Input should be a valid number"):
        read(StepEvent, to_json(STEP) | {"step_s": "short"})


@pytest.mark.parametrize(
    "event_type", sorted({*KINDS.values(), *RANK_KINDS.values()}, key=str), ids=lambda one: one.__name__
)
def test_every_field_is_described(event_type: type) -> None:
    schema = json_schema(event_type)
    for described in (schema, *schema.get("$defs", {}).values()):
        assert described["description"].endswith(".")
        for name, field in described["properties"].items():
            assert field["description"].endswith("."), name


def test_messages_need_neither_torch_nor_ray() -> None:
    code = "import sys, shardyard.workers.messages.rank_event; assert not {'torch', 'ray'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
