"""What is sent with the spec of a user's own module, and what is said where a dry run fails."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from shardyard.api.client import module_plan
from shardyard.api.client.module_plan import OwnModule, of_preview, train_of, with_change
from shardyard.api.client.transport import ApiError
from shardyard.service.schemas.memory_plan import MemoryPlan
from shardyard.service.schemas.preview import Preview
from shardyard.service.schemas.problem import FieldError
from shardyard.service.spec import JobSpec
from shardyard.strategies.layout import Refusal
from shardyard.workers.dry_run.processes import DryRunFailed, DryRunUnavailable
from shardyard.workers.own_plan import digest, kept
from shardyard.workers.planned_memory import HeldBytes, PlannedMemory
from shardyard.workers.spec import Dtype, TrainSpec

DOCUMENT: dict[str, Any] = {
    "name": "mine",
    "train": {
        "model": {"import": "net:make", "code": "/code"},
        "layout": {"data": 2, "micro_batch": 1},
        "recompute": "full",
        "offload": {"optimizer": 1},
        "steps": 2,
        "global_batch": 8,
    },
}


def preview(**changes: Any) -> Preview:
    given = {"name": "mine", "layout": "data 2", "batch": "", "world_size": 2, "precision": "bf16"}
    return Preview.model_validate({**given, "needs_dry_run": True, **changes})


def planned(train: TrainSpec, precision: Dtype, seconds: float) -> PlannedMemory:
    assert precision == "bf16" and seconds > 0
    return PlannedMemory(of=digest(train), ranks=2, parameters=3, at_peak=HeldBytes(parameters=6))


def fails(error: Exception) -> Callable[..., PlannedMemory]:
    def make(train: TrainSpec, precision: Dtype, seconds: float) -> PlannedMemory:
        raise error

    return make


def own(make: module_plan.MakePlan = planned, seconds: float = 60.0) -> OwnModule:
    train = train_of(DOCUMENT)
    assert train is not None
    return OwnModule(DOCUMENT, train, "bf16", time.monotonic() + seconds, make)


@pytest.mark.parametrize(
    "document",
    [None, "text", {}, {"name": "a", "command": "true"}, {**DOCUMENT, "train": {**DOCUMENT["train"], "steps": "x"}}],
    ids=str,
)
def test_other_documents_have_no_own_module(document: Any) -> None:
    assert train_of(document) is None


@pytest.mark.parametrize(
    ("found", "seconds"), [(preview(needs_dry_run=False), 9.0), (preview(precision=None), 9.0), (preview(), 0.0)]
)
def test_no_dry_run_is_made_that_is_not_asked_for(found: Preview, seconds: float) -> None:
    assert of_preview(DOCUMENT, found, seconds) is None


def test_a_spec_is_sent_with_its_plan_which_the_server_keeps() -> None:
    asked = of_preview(DOCUMENT, preview(), 9.0)
    assert asked is not None and asked.precision == "bf16"
    sent = JobSpec.model_validate(own().planned(), strict=True)
    assert sent.train.planned is not None and kept(sent.train) is sent.train
    assert "planned" not in DOCUMENT["train"]


def test_a_changed_spec_is_sent_with_the_plan_of_the_change() -> None:
    [change, *_] = own().changes()
    assert str(change) == "layout.zero: 1"
    document = own().changed(change)
    sent = JobSpec.model_validate(document, strict=True)
    assert sent.train.layout.zero == 1 and sent.train.recompute.mode == "full" and kept(sent.train) is sent.train


@pytest.mark.parametrize("error", [Refusal("layout.zero", "no.", "n"), DryRunFailed("x"), DryRunUnavailable("y")])
def test_a_change_that_cannot_run_is_none(error: Exception) -> None:
    [change, *_] = own().changes()
    assert own(fails(error)).changed(change) is None


@pytest.mark.parametrize(
    ("error", "field", "says"),
    [
        (Refusal("model.import", "cannot import net:make: no.", "Give it."), "train.model.import", "cannot import"),
        (DryRunFailed("The dry run of rank 0 failed: KeyError: 3"), "train.model.import", "KeyError: 3"),
        (Refusal("layout.tensor", "it has no plan.", "Set 1."), "train.layout.tensor", "no plan"),
    ],
)
def test_a_module_that_fails_is_an_error_with_its_field(error: Exception, field: str, says: str) -> None:
    with pytest.raises(ApiError, match=says) as caught:
        own(fails(error)).planned()
    [finding] = caught.value.errors
    assert (caught.value.code, finding.field) == ("dry_run_failed", field) and finding.remedy


def test_without_time_nothing_is_run_and_no_change_is_tried() -> None:
    late = own(fails(AssertionError()), seconds=-1.0)
    with pytest.raises(DryRunUnavailable, match="no time"):
        late.planned()
    assert [*late.changes()] == []


def test_a_refusal_names_the_change_that_fits() -> None:
    [change, *_] = own().changes()
    memory = MemoryPlan(
        device="cuda", fits=True, bytes=1, needed_bytes=3 << 30, reserved_bytes=0, device_bytes=None, kinds=[], host=[], notes=[]
    )  # fmt: skip
    refused = ApiError(
        "does_not_fit", "It does not fit.", 422, [FieldError(field="train.layout", message="A rank needs.")]
    )
    found = with_change(refused, change, preview(memory=memory))
    assert (found.code, found.status, found.errors[0].message) == ("does_not_fit", 422, "A rank needs.")
    assert found.errors[0].field == "train.layout.zero"
    assert (found.errors[0].remedy or "").startswith("Set layout.zero: 1: a rank then needs 3.0 GiB. Or set resources.")
