"""What a spec may say of its documents."""

import pytest
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


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": {"import": "a:b"}}, "model.import"),
        ({"compile": True}, "compile"),
        ({"precision": "fp8"}, "precision"),
        ({"layout": {"tensor": {"mode": "2d", "shape": [2, 2]}}}, "layout.tensor"),
    ],
)
def test_what_is_not_proved_with_packed_documents_is_refused(change: dict[str, object], field: str) -> None:
    spec = {"steps": 1, "global_batch": 8, "data": {"documents": "packed"}, **change}
    with pytest.raises(Refusal) as refused:
        TrainSpec.model_validate(spec).check()
    assert refused.value.field == field
    assert "set data.documents to joined" in refused.value.remedy


def test_packed_documents_are_not_compiled_by_themselves() -> None:
    from shardyard.workers.device_choices import DeviceFacts, choices

    spec = TrainSpec.model_validate({"steps": 1000, "global_batch": 8, "data": {"documents": "packed"}})
    found = choices(spec, spec.facts(), DeviceFacts("cuda", (9, 0)))
    assert found.train.compile is False
    assert any("masks by document" in reason for reason in found.reasons)
