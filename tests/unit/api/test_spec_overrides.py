"""Values of the command line in a spec."""

import pytest

from shardyard.api.errors import InvalidParameter
from shardyard.api.spec_overrides import overridden

SPEC = {"name": "x", "train": {"steps": 5, "data": {"files": ["a", "b"]}}}


def test_values_are_yaml_at_the_path_of_their_key() -> None:
    given = ["train.steps=20", "train.lr=1e-3", "train.data.files[1]=c=d", "labels={team: a}", "secrets=[A, B]"]
    found = overridden(SPEC, given)
    train = {"steps": 20, "lr": 1e-3, "data": {"files": ["a", "c=d"]}}
    assert found == {"name": "x", "train": train, "labels": {"team": "a"}, "secrets": ["A", "B"]}
    assert SPEC["train"] == {"steps": 5, "data": {"files": ["a", "b"]}}


@pytest.mark.parametrize(
    "text",
    ["train.steps", "=3", "name.first=x", "a[x]=1", *(f"train.data.files[{item}]=x" for item in (2, 7, -1, -3))],
)
def test_what_has_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        overridden(SPEC, [text])


def test_a_value_that_is_not_yaml_is_named_by_its_key() -> None:
    with pytest.raises(InvalidParameter, match=r"'\{x' is not YAML") as refused:
        overridden({}, ["labels={x"])
    assert refused.value.field == "labels"
