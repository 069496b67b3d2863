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
    ("written", "read"),
    [
        *(
            (text, text)
            for text in ("12.10", "00714", "0x10", "1e6", "123e4567", "-0", "7", ".nan", "true", "2024-01-01")
        ),
        ("'12.10'", "12.10"),
        ('"a: b"', "a: b"),
        ("plain", "plain"),
        ("null", None),
    ],
)
def test_numbers_stay_as_written_in_what_is_text(written: str, read: str | None) -> None:
    document = {"command": ["a", "b", "c"], "resources": {"env": {"ZIP": "x"}}}
    found = overridden(document, [f"resources.env.ZIP={written}", f"command[2]={written}"])
    assert found == {"command": ["a", "b", read], "resources": {"env": {"ZIP": read}}}


def test_numbers_are_numbers_elsewhere() -> None:
    assert overridden({}, ["train.lr=00.10", "command=1e3"]) == {"train": {"lr": 0.1}, "command": 1000.0}


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
