"""Checks of a spec that need no file. With files: tests/integration/api/test_validation.py."""

from typing import Any

import pytest

from shardyard.service.errors import InvalidSpec
from shardyard.service.jobs.validation import check_paths
from shardyard.workers.spec import TrainSpec


def train(**parts: Any) -> TrainSpec:
    return TrainSpec.model_validate({"steps": 1, "global_batch": 1, **parts})


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"data": {"source": "text", "files": ["/a.txt", "s3://me:secret@bucket/a.txt"]}}, "train.data.files"),
        ({"data": {"tokenizer": "https://me:secret@host/tokenizer.json"}}, "train.data.tokenizer"),
        ({"model": {"from": "hf://owner/secret"}}, "train.model.from"),
        ({"model": {"import": "m:f", "code": "s3://bucket/secret"}}, "train.model.code"),
    ],
)
def test_an_address_is_refused_where_a_file_system_is_read(parts: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSpec, match="is an address") as refused:
        check_paths(train(**parts))
    assert refused.value.field == field
    assert "secret" not in str(refused.value), "it may be a password"


def test_checkpoints_may_be_in_a_bucket_and_files_below_a_home_folder() -> None:
    check_paths(train(checkpoint={"uri": "s3://bucket/a"}, data={"source": "text", "files": ["~/a.txt", "/b.txt"]}))


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="is a relative path"):
        check_paths(train(data={"tokenizer": "a/tokenizer.json"}))
