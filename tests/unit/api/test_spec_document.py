"""Bodies become plain data, or are refused quickly and by name."""

from typing import get_args

import pytest

from shardyard.api.errors import InvalidEncoding, InvalidSyntax, SpecTooLarge
from shardyard.api.spec_document import MAX_DEPTH, Format, dotted, parse, walk
from shardyard.workers.spec import MAX_SPEC_BYTES


def test_yaml_and_json_of_one_document_are_equal() -> None:
    yaml = b"name: a\ntrain: {lr: 1e-3, steps: 5, on: yes, date: 2020-01-01, none: ~, flag: true, x: '5'}\n"
    json = b"""{"name": "a", "train": {"lr": 0.001, "steps": 5, "on": "yes", "date": "2020-01-01", "none": null,
        "flag": true, "x": "5"}}"""
    assert parse(yaml, "yaml") == parse(json, "json")


def test_a_byte_order_mark_is_no_content() -> None:
    assert parse("\ufeffname: ü".encode(), "yaml") == {"name": "ü"}


@pytest.mark.parametrize(
    ("body", "form", "expected"),
    [
        (b"a: &x [1]\nb: *x", "yaml", "alias"),
        (b"a: 1\na: 2", "yaml", "twice"),
        (b'{"a": 1, "a": 2}', "json", "twice"),
        (b"a: [1, 2", "yaml", "Not YAML"),
        (b'{"a": 1', "json", "Not JSON"),
        (b"1: 2", "yaml", "not text"),
        (b"? [a]\n: b", "yaml", "not text"),
        (b"a: !!python/object:os.system x", "yaml", "tag"),
        (b"a: !!timestamp 2020-01-01", "yaml", "tag"),
        (b"a: !!int foo", "yaml", "whole number"),
        (b"a: !!map foo", "yaml", "map' needs a mapping .line 1, column 4"),
        (b"a: !!map [[b, 1]]", "yaml", "needs a mapping"),
        (b"a: !!seq foo", "yaml", "needs a list"),
        (b"!!seq {a: 1}", "yaml", "needs a list"),
        (b"a: !!null {b: 1}", "yaml", "scalar"),
        (b"a: !!null b", "yaml", "'b' is not null"),
        (b"--- 1\n--- 2", "yaml", "more than one"),
        (b'{"a": "\\ud800"}', "json", "surrogate"),
        (b'a: "\\0"', "yaml", "NUL"),
        (b'{"\\u0000": 1}', "json", "NUL"),
        (b"a: \x07", "yaml", "control"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "json", "digits"),
        (b"a: 0xffffffffffffffffffffffff", "yaml", "64 bits"),
        (b"[" * 500_000, "yaml", "levels deep"),
        (b"[" * 500_000 + b"]" * 500_000, "json", "levels deep"),
        (b"a:\n" + b"- 1\n" * 200_000, "yaml", "more than 50000"),
    ],
)
def test_refused_syntax_says_why(body: bytes, form: str, expected: str) -> None:
    with pytest.raises(InvalidSyntax, match=expected) as refusal:
        parse(body, form)  # type: ignore[arg-type]
    assert refusal.value.remedy


def test_an_alias_bomb_never_grows() -> None:
    levels = [b"a0: &a0 [x, x]"] + [b"a%d: &a%d [*a%d, *a%d]" % (i, i, i - 1, i - 1) for i in range(1, 60)]
    with pytest.raises(InvalidSyntax, match="alias"):
        parse(b"\n".join(levels), "yaml")


def test_depth_is_counted_alike_in_both_notations() -> None:
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse(deep, "json") == parse(deep, "yaml")
    for form in ("json", "yaml"):
        with pytest.raises(InvalidSyntax, match="levels deep"):
            parse(b"[" + deep + b"1]" if form == "yaml" else b"[[" + deep + b"]]", form)  # type: ignore[arg-type]


def test_bytes_that_are_not_utf_8() -> None:
    with pytest.raises(InvalidEncoding, match="byte 3 is 0xff"):
        parse(b"a: \xff", "yaml")


def test_too_much() -> None:
    with pytest.raises(SpecTooLarge):
        parse(b" " * (MAX_SPEC_BYTES + 1), "yaml")


def test_values_are_counted_alike_in_both_notations() -> None:
    few, many = (f"[{','.join(['1'] * count)}]".encode() for count in (40_000, 60_000))
    for form in get_args(Format):
        assert len(parse(few, form)) == 40_000
        with pytest.raises(InvalidSyntax, match="more than 50000 values"):
            parse(many, form)


def test_walk_gives_every_value_with_its_path() -> None:
    found = {dotted(path): value for path, value in walk({"a": [1, {"b": 2}]})}
    assert found[""] == {"a": [1, {"b": 2}]}
    assert found["a[0]"] == 1
    assert found["a[1].b"] == 2
