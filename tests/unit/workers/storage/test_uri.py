"""Addresses have one form, and what is refused is refused with a remedy and without a secret."""

import sys
from pathlib import Path

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.spec import TrainSpec
from shardyard.workers.storage.uri import address, below, refuse_unreachable


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (Path("/a/b"), "/a/b"),
        ("/a b/ü", "/a b/ü"),
        ("file:///a%20b/c", "/a b/c"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/b c/", "s3://bucket/a/b c"),
        ("job-01abc", "job-01abc"),
    ],
)
def test_one_form(given: str | Path, found: str) -> None:
    assert address(given) == found == address(found)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("s3://me:geheim@bucket/a", "workers' environment"),
        ("s3://geheim@bucket", "workers' environment"),
        ("s3://", "s3://bucket/prefix"),
        ("s3:///a", "s3://bucket/prefix"),
        ("s3://bucket/a//b", "s3://bucket/prefix"),
        ("s3://bucket/a/../geheim", "s3://bucket/prefix"),
        ("s3://bucket/a?token=geheim", r"without \? and #"),
        ("gs://bucket/geheim", "s3://bucket/prefix"),
        ("https://me:geheim@host/a", "s3://bucket/prefix"),
        ("file://host/geheim", "file system that all nodes see"),
    ],
)
def test_others_are_refused_without_a_secret(given: str, remedy: str) -> None:
    with pytest.raises(Refusal, match=remedy) as refused:
        address(given)
    assert "geheim" not in str(refused.value)


def test_a_job_has_a_folder_of_its_own_below_what_the_spec_or_the_server_names() -> None:
    numbers = {"steps": 1, "global_batch": 1}
    there = TrainSpec.model_validate({**numbers, "checkpoint": {"uri": "s3://bucket/mine/"}})
    assert there.checkpoints("/shared", "job-1") == "s3://bucket/mine/job-1"
    assert (
        TrainSpec.model_validate(numbers).checkpoints("/shared", "job-1")
        == below("/shared", "job-1")
        == "/shared/job-1"
    )


def test_a_missing_extra_is_said_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_unreachable("s3://bucket/a")
    monkeypatch.setitem(sys.modules, "s3fs", None)  # as Python sees a module that is not installed
    refuse_unreachable("/local")
    with pytest.raises(Refusal, match=r"pip install 'shardyard\[s3\]'"):
        refuse_unreachable("s3://bucket/a")
