"""Storage that does not answer is never taken for a damaged or missing checkpoint, in every reader."""

import os
from pathlib import Path

import pytest
from harness.ranks import group, spawn

from shardyard.api.cli.commands import models
from shardyard.service.errors import UnknownCheckpoint
from shardyard.service.jobs.resume import newest_checkpoint
from shardyard.workers.checkpoint.errors import CheckpointError
from shardyard.workers.checkpoint.inspect import inspect_checkpoint
from shardyard.workers.checkpoint.manifest import Manifest, write
from shardyard.workers.checkpoint.verify import verify_together
from shardyard.workers.storage import s3_bucket
from shardyard.workers.storage.errors import StorageDenied, StorageError, StorageUnreachable
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.tasks.checkpoint_task import Operation, perform

AWAY = "s3://bucket/job/step-00000001"
#: Of a server at a port where none listens.
CREDENTIALS = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint in a bucket whose server does not listen."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3_bucket, "TRIES", 1)
    monkeypatch.setattr(s3_bucket, "READ_TRIES", 1)
    return AWAY


def test_storage_lies_below_checkpoints() -> None:
    for error in (StorageUnreachable("away"), StorageDenied("no")):
        assert isinstance(error, StorageError) and isinstance(error, OSError) and not isinstance(error, CheckpointError)
    assert StorageUnreachable("away").facts == {"cause": "storage_unreachable"} and StorageDenied("no").facts == {}


@pytest.mark.parametrize("verify", [False, True])
def test_nothing_is_known_of_a_checkpoint(away: str, verify: bool) -> None:
    found = inspect_checkpoint(away, verify=verify)
    assert (found.verdict, found.code) == ("unknown", "storage_unreachable")
    assert found.why and "bucket" in found.why


def test_an_operation_fails_by_the_storage(away: str, tmp_path: Path) -> None:
    operations = [
        Operation("op", "verify", away),
        Operation("op", "export", away, str(tmp_path / "out"), "fp32"),
        Operation("op", "export", str(tmp_path), f"{away}/out", "fp32"),
    ]
    assert [(perform(one).error or {})["code"] for one in operations] == ["storage_unreachable"] * 3


def test_the_command_line_names_the_storage(away: str, tmp_path: Path) -> None:
    with pytest.raises(StorageUnreachable):
        newest_checkpoint(away)
    with pytest.raises(UnknownCheckpoint) as refused:
        models._newest(away)
    assert refused.value.remedy == "Try again when the storage answers."
    with pytest.raises(UnknownCheckpoint, match="s3://bucket"):
        models._here(away, tmp_path / "out", "fp32", 1)


def _verify(rank: int, world: int, port: int, path: str) -> str:
    """Rank 0 has a valid checkpoint; the bucket of rank 1 does not answer."""
    group(rank, world, port)
    s3_bucket.TRIES = s3_bucket.READ_TRIES = 1
    os.environ |= CREDENTIALS
    folder = folder_at(path if rank == 0 else AWAY)
    if rank == 0:
        write(folder, Manifest(1, {}, {}, {}))
    try:
        verify_together(folder)
    except StorageError as error:
        return type(error).__name__
    return "verified"


def test_every_rank_learns_that_one_rank_has_no_answer(tmp_path: Path) -> None:
    assert spawn(_verify, 2, str(tmp_path)) == ["StorageUnreachable"] * 2
