"""How a spec names a version of a model, and which texts are jobs or paths instead."""

import pytest

from shardyard.service.schemas.model import Reference


@pytest.mark.parametrize(
    ("text", "found", "number"),
    [
        ("models/nano", Reference("nano", "latest"), None),
        ("models/nano@production", Reference("nano", "production"), None),
        ("models/nano-2@17", Reference("nano-2", "17"), 17),
        ("models/nano@" + "9" * 10, Reference("nano", "9" * 10), None),
        ("models/nano@" + "a" * 64, None, None),
        ("models/Nano", None, None),
        ("models/nano@", None, None),
        ("models/nano@Best", None, None),
        ("models/nano/step-00000010", None, None),
        ("./models/nano", None, None),
        ("models/", None, None),
        ("models/nano\n", None, None),
        ("nano", None, None),
    ],
)
def test_a_reference_is_a_model_and_a_number_or_an_alias(
    text: str, found: Reference | None, number: int | None
) -> None:
    reference = Reference.parse(text)
    assert reference == found
    if reference is not None:
        assert reference.number == number and Reference.parse(str(reference)) == reference
