"""Plain data by YAML 1.2; what is none is an error of YAML with its place."""

import math

import pytest
import yaml

from shardyard.workers.core_yaml import NotPlain, RepeatedKey, load


def test_numbers_follow_yaml_1_2() -> None:
    read = load("{a: 0x1f, b: 0o17, c: -3, d: 1.5, e: .5, f: 1_000, g: 1:30, h: +.inf, i: 3e-4}")
    assert read == {
        "a": 31,
        "b": 15,
        "c": -3,
        "d": 1.5,
        "e": 0.5,
        "f": "1_000",
        "g": "1:30",
        "h": math.inf,
        "i": 3e-4,
    }


def test_what_is_not_plain_is_refused_at_its_place() -> None:
    with pytest.raises(NotPlain, match="a key is not text") as refused:
        load("a: 1\n2: 3")
    assert (refused.value.line, refused.value.column) == (2, 1) and isinstance(refused.value, yaml.YAMLError)
    with pytest.raises(RepeatedKey) as repeated:
        load("a: 1\na: 2")
    assert (repeated.value.key, repeated.value.line) == ("a", 2)
