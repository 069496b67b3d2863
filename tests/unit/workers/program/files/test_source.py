"""Sources of files: what is one, and what a spec must not hold."""

import importlib.util

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.program.files import source as module
from shardyard.workers.program.files.source import Source, parse, refuse_missing_library


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("s3://bucket/a/b/", Source("bucket", "s3://bucket/a/b")),
        ("/mnt/data/", Source("path", "/mnt/data")),
        ("file:///mnt/my%20data", Source("path", "/mnt/my data")),
        ("hf://org/name", Source("hub", "hf://org/name", "org/name")),
        ("hf://models/org/name@v1", Source("hub", "hf://models/org/name@v1", "org/name", "model", "v1")),
        (
            "hf://datasets/org/name@refs%2Fpr%2F1/train/0.parquet",
            Source(
                "hub",
                "hf://datasets/org/name@refs%2Fpr%2F1/train/0.parquet",
                "org/name",
                "dataset",
                "refs/pr/1",
                "train/0.parquet",
            ),
        ),
    ],
)
def test_a_source_is_read(text: str, source: Source) -> None:
    assert parse(text) == source


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("data", "relative path"),
        ("/mnt/../etc", "no path of files"),
        ("/", "no path of files"),
        ("ftp://host/data", "'ftp' is not a known kind"),
        ("s3://key:secret@bucket/a", "no user and no password"),
        ("hf://name", "not an address on the Hugging Face Hub"),
        ("hf://datasets/name", "not an address on the Hugging Face Hub"),
        ("hf://spaces/org/name", "not an address on the Hugging Face Hub"),
        ("hf://org/name/../other", "not an address on the Hugging Face Hub"),
        ("hf://org/name?token=abc", "not an address on the Hugging Face Hub"),
        ("hf://user:pass@org/name", "not an address on the Hugging Face Hub"),
    ],
)
def test_what_is_no_source_is_refused(text: str, why: str) -> None:
    with pytest.raises(Refusal, match=why) as refused:
        parse(text)
    assert refused.value.remedy and "secret@" not in str(refused.value) and "token" not in str(refused.value)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_missing_library(parse("hf://org/name"))
    assert importlib.util.find_spec("huggingface_hub")
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(Refusal, match="the extra hub, which is not installed"):
        refuse_missing_library(parse("hf://org/name"))
    refuse_missing_library(parse("/mnt/data"))
