"""Values of the command line in a spec."""

from typing import Any

import pytest

from shardyard.api.errors import InvalidParameter
from shardyard.api.spec_file import GivenSpec
from shardyard.api.spec_overrides import overridden, placed, without_old_archive

SPEC = {"name": "x", "train": {"steps": 5, "data": {"files": ["a", "b"]}}}
ARCHIVE = "0" * 64


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


@pytest.mark.parametrize(
    ("edited", "archive"),
    [
        ({"dir": "/src", "archive": ARCHIVE}, ARCHIVE),
        ({"dir": "/other", "archive": ARCHIVE}, None),
        ({"git": "/repository", "archive": ARCHIVE}, None),
        ({"dir": "/other", "archive": "1" * 64}, "1" * 64),
        ({"dir": "/src", "ignore": ["*.bin"], "archive": ARCHIVE}, ARCHIVE),
        ({"dir": "/other"}, None),
        (None, None),
        ("no mapping", None),
    ],
)
def test_an_edited_spec_with_code_from_elsewhere_names_no_old_archive(edited: Any, archive: str | None) -> None:
    draft = GivenSpec({"name": "tiny", "code": {"dir": "/src", "archive": ARCHIVE}}, "text")
    found = without_old_archive(GivenSpec({"name": "tiny", "code": edited}, "text"), draft)
    kept = (
        edited if archive or not isinstance(edited, dict) else {key: edited[key] for key in edited if key != "archive"}
    )
    assert found == GivenSpec({"name": "tiny", "code": kept}, "text")


def test_a_draft_without_code_or_archive_stays_as_it_is_edited() -> None:
    """The service refuses what is no code."""
    for draft in ({"name": "tiny"}, {"name": "tiny", "code": {"dir": "/src"}}):
        for code in ({"dir": "/other"}, "no mapping", None):
            edited = GivenSpec({"name": "tiny", "code": code})
            assert without_old_archive(edited, GivenSpec(draft)) == edited
    assert placed({}, {"code.dir": "/src", "code": "no mapping"}) == {"code": "no mapping"}
