"""What a spec may say of its documents."""

import pytest
from harness.models import MIXTURE
from pydantic import ValidationError

from shardyard.strategies.layout import Refusal
from shardyard.workers.data_spec import DataSpec
from shardyard.workers.spec import TrainSpec


def test_documents_are_joined_unless_the_spec_says_packed() -> None:
    assert not DataSpec().is_packed
    assert DataSpec(documents="packed").is_packed
    with pytest.raises(ValidationError, match="'joined' or 'packed'"):
        DataSpec.model_validate({"documents": "masked"})


def test_a_source_of_your_own_has_no_documents() -> None:
    with pytest.raises(ValidationError, match="leave out documents"):
        DataSpec.model_validate({"source": "a:b", "documents": "packed"})


def test_what_cannot_work_with_packed_documents_is_refused() -> None:
    layout = {"data": 2, "parameter_server": {"servers": 1, "mode": "async"}}
    spec = {"steps": 1, "global_batch": 8, "data": {"documents": "packed"}, "layout": layout}
    with pytest.raises(Refusal) as refused:
        TrainSpec.model_validate(spec).check()
    assert refused.value.field == "layout.parameter_server"
    assert "set data.documents to joined" in refused.value.remedy


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"import": "a:b"}},
        {"compile": True},
        {"precision": "fp8"},
        {"model": MIXTURE, "layout": {"data": 2, "expert": 2}},
        {"layout": {"tensor": {"mode": "2d", "shape": [2, 2]}}},
        {"layout": {"tensor": {"mode": "3d", "shape": [2, 2, 2]}}},
        {"layout": {"pipeline": 2, "schedule": "2bw"}},
        {"layout": {"data": 2, "parameter_server": {"servers": 1}}},
    ],
    ids=str,
)
def test_what_is_proved_with_packed_documents_is_taken(change: dict[str, object]) -> None:
    spec = {"steps": 1, "global_batch": 8, "data": {"documents": "packed"}, **change}
    TrainSpec.model_validate(spec).check()


def test_packed_documents_are_not_compiled_by_themselves() -> None:
    from shardyard.workers.device_choices import DeviceFacts, choices

    spec = TrainSpec.model_validate({"steps": 1000, "global_batch": 8, "data": {"documents": "packed"}})
    found = choices(spec, spec.facts(), DeviceFacts("cuda", (9, 0)))
    assert found.train.compile is False
    assert any("masks by document" in reason for reason in found.reasons)


def test_a_source_of_your_own_goes_through_pipelines_that_are_flushed() -> None:
    spec = {"steps": 1, "global_batch": 8, "model": {"import": "a:b"}, "data": {"source": "a:c"}}
    for schedule in ("gpipe", "1f1b", "interleaved"):
        TrainSpec.model_validate(
            {**spec, "layout": {"data": 2, "zero": 1, "pipeline": 2, "schedule": schedule}}
        ).check()
    for schedule in ("pipedream", "2bw"):
        with pytest.raises(Refusal, match="needs to know what stages pass on") as refused:
            TrainSpec.model_validate({**spec, "layout": {"pipeline": 2, "schedule": schedule}}).check()
        assert refused.value.field == "model.import" and "layout.schedule to 1f1b" in refused.value.remedy
