"""Checks of a spec that need no file. With files: tests/integration/api/test_validation.py."""

from typing import Any

import pytest

from shardyard.service.errors import InvalidSpec
from shardyard.service.jobs.validation import check, check_paths
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.spec_files import SpecFiles
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


SERVERS = {"data": 2, "parameter_server": {"servers": 1}}


@pytest.mark.parametrize(
    ("resources", "precision", "field", "remedy"),
    [
        ({"device": "cuda"}, "fp32", "resources.device", "Set resources.device to cpu, or"),
        ({"gpu": "H100"}, "fp32", "resources.gpu", "Leave resources.gpu out, or"),
        ({"gpu": "H100"}, "fp8", "resources.gpu", "Leave resources.gpu out, or"),
        (
            {"gpu": "H100", "device": "cuda"},
            "fp32",
            "resources.gpu",
            "Leave resources.gpu out and set resources.device to cpu, or",
        ),
        ({}, "fp8", "train.precision", "Use bf16, or"),
        ({"device": "cpu"}, "fp8", "train.precision", "Use bf16, or"),
    ],
)
async def test_parameter_servers_with_gpus_are_refused_by_what_asks_for_gpus(
    resources: dict[str, Any], precision: str, field: str, remedy: str
) -> None:
    parts = {"steps": 1, "global_batch": 2, "layout": SERVERS, "precision": precision}
    spec = JobSpec.model_validate({"name": "x", "train": parts, "resources": resources})
    with pytest.raises(InvalidSpec) as refused:
        await check(spec, Settings(local_files=False), SpecFiles())
    assert refused.value.field == field
    assert refused.value.remedy == f"{remedy} leave train.layout.parameter_server out."


async def test_what_a_refusal_of_parameter_servers_recommends_is_taken() -> None:
    parts = {"steps": 1, "global_batch": 2, "layout": SERVERS, "precision": "bf16"}
    for resources in ({}, {"device": "cpu"}):
        spec = JobSpec.model_validate({"name": "x", "train": parts, "resources": resources})
        assert (await check(spec, Settings(local_files=False), SpecFiles())).batch.data == 2
