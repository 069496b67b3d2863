"""Buckets, by a real server over HTTP: large files, dead writers, dead servers, damage. Silence is never taken for damage."""

import hashlib
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.bucket import Buckets, Door
from harness.patience import PATIENCE_S

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.checkpoint import program_files, restore
from shardyard.workers.checkpoint.errors import CheckpointCorrupt
from shardyard.workers.checkpoint.manifest import MANIFEST, File, Manifest, read, write
from shardyard.workers.checkpoint.reader import load_into
from shardyard.workers.checkpoint.retention import complete, folder, sweep
from shardyard.workers.checkpoint.staging_buffer import StagingBuffer
from shardyard.workers.checkpoint.verify import verify
from shardyard.workers.storage import s3_bucket
from shardyard.workers.storage.errors import StorageDenied, StorageError, StorageUnreachable
from shardyard.workers.storage.file_content import FileContent
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.storage.s3_folder import BucketFolder

CHANGES = 40


def piece(values: torch.Tensor) -> ParamShard:
    return ParamShard("weight", tuple(values.shape), (0,) * values.ndim, values, frozenset())


def save(path: Folder, values: torch.Tensor, step: int) -> Manifest:
    """A checkpoint of two files."""
    halves, files, tensors = torch.chunk(values, 2), {}, {}
    for rank, half in enumerate(halves):
        part = ParamShard("weight", tuple(values.shape), (rank * len(halves[0]), 0), half, frozenset())
        image = StagingBuffer([part], torch.device("cpu"))
        image.take()
        content = image.content()
        path.write(f"rank-{rank}", content)
        files[f"rank-{rank}"] = File(len(content), hashlib.sha256(content).hexdigest(), tuple(image.slices))
        tensors |= image.tensors
    manifest = Manifest(step, {"step": step}, tensors, files)
    write(path, manifest)
    return manifest


def nothing(*_: object) -> None:
    """There is nothing to say, and nothing to refuse."""


def loaded(path: Folder, like: torch.Tensor) -> torch.Tensor:
    manifest = read(path)
    verify(path, manifest)
    found = piece(torch.full_like(like, torch.nan))
    load_into(path, manifest, [found])
    return found.tensor


def uploads(path: Folder) -> list[str]:
    assert isinstance(path, BucketFolder)
    found = path._bucket.call("list_multipart_uploads", Prefix=path._key(""))
    return [upload["Key"] for upload in found.get("Uploads", ())]


def test_a_large_file_goes_and_comes_in_parts(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_bucket, "BLOCK_BYTES", 5 << 20)  # S3 takes no smaller parts
    content = os.urandom((11 << 20) + 3)
    root = folder_at(prefix)
    root.write("large", memoryview(content))
    assert root.files() == {"large": len(content)} and uploads(root) == []
    assert isinstance(root, BucketFolder) and [*root.head("large")["Metadata"]] == ["shardyard-upload"]
    assert root.sha256("large", len(content)) == hashlib.sha256(content).hexdigest()
    assert root.sha256("large", len(content) - 1) is None
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        root.write("copy", FileContent(file.fileno(), len(content)))
    assert root.sha256("copy", len(content)) == hashlib.sha256(content).hexdigest()
    root.remove("copy")
    room = bytearray(6 << 20)
    root.read_into("large", (4 << 20) + 1, memoryview(room))
    assert room == content[(4 << 20) + 1 :][: 6 << 20]
    for start in (len(content) - 5, len(content) + 5):
        with pytest.raises(OSError, match=r"ends before|not satisfiable") as short:
            root.read_into("large", start, memoryview(bytearray(8)))
        assert not isinstance(short.value, StorageError)


def test_a_large_file_is_fetched_in_several_requests_at_once(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in no more than are to be held in memory: a program's checkpoint is copied to a node."""
    monkeypatch.setattr(program_files, "BLOCK_BYTES", 1 << 10)
    content, weights, root = os.urandom((20 << 10) + 3), tmp_path / "weights", folder_at(prefix)
    weights.write_bytes(content)
    part = program_files.write_part(folder(root, 1), 0, program_files.sources(weights))
    program_files.publish(root, 1, "files", [part], 2, ())
    saved = program_files.read_program(folder(root, 1))
    usual, changed, counts = s3_bucket.Bucket.get, threading.Condition(), [0]

    def get(self: s3_bucket.Bucket, *which: Any) -> bytes:
        with changed:
            counts.append(counts[-1] + 1)
            changed.notify_all()
            assert changed.wait_for(lambda: max(counts) >= s3_bucket.AT_ONCE, PATIENCE_S)
        found = usual(self, *which)
        with changed:
            counts.append(counts[-1] - 1)
        return found

    monkeypatch.setattr(s3_bucket.Bucket, "get", get)
    program_files.fetch(saved, 0, tmp_path / "copy")
    assert (tmp_path / "copy/weights").read_bytes() == content and max(counts) == s3_bucket.AT_ONCE


def test_what_a_dead_writer_has_uploaded_is_no_file_and_is_freed(prefix: str) -> None:
    root = folder_at(prefix)
    path, values = folder(root, 4), torch.randn(8, 3)
    assert isinstance(path, BucketFolder)
    began = path._bucket.call("create_multipart_upload", Key=path._key("rank-0"))["UploadId"]
    path._bucket._put_part(path._key("rank-0"), memoryview(b"half"), began, 4, 0)
    assert path.files() == {} and complete(root) == [] and len(uploads(root)) == 1
    save(path, values, 4)
    root.sweep()
    assert uploads(root) == [] and torch.equal(loaded(path, values), values)


def test_uploads_of_living_writers_beside_a_save_and_after_it_go_on(prefix: str) -> None:
    """An export of the user's own, Ray Train, and another rank's later step are below the same prefix."""
    root = folder_at(prefix)
    names = ("step-00000003", "step-00000004", "step-00000003-good", "step-00000005", "export-00000002", "trial_1")
    for name in names:
        path = root / name
        assert isinstance(path, BucketFolder)
        path._bucket.call("create_multipart_upload", Key=path._key("rank-0"))
    sweep(root, folder(root, 4))
    assert isinstance(root, BucketFolder)
    assert sorted(uploads(root)) == sorted((root / name)._key("rank-0") for name in names[2:])
    root.sweep()
    assert uploads(root) == [], "of a folder that is removed all go"


def in_pages(call: Any, method: str, **wanted: Any) -> Any:
    """The answer to a listing of uploads as S3 sends it, and SeaweedFS does not: by key, with where the next one begins."""
    if method != "list_multipart_uploads":
        return call(method, **wanted)
    after, most = (wanted.pop("KeyMarker", ""), wanted.pop("UploadIdMarker", "")), wanted.pop("MaxUploads", 2)
    found = sorted(call(method, **wanted)["Uploads"], key=lambda one: (one["Key"], one["UploadId"]))
    left = [one for one in found if (one["Key"], one["UploadId"]) > after]
    last = left[:most][-1]
    markers = {"NextKeyMarker": last["Key"], "NextUploadIdMarker": last["UploadId"]} if len(left) > most else {}
    return {"Uploads": left[:most], "IsTruncated": len(left) > most, **markers}


@pytest.mark.parametrize("as_s3", [True, False], ids=["with markers", "without markers"])
def test_uploads_that_fill_several_answers_are_freed(prefix: str, monkeypatch: pytest.MonkeyPatch, as_s3: bool) -> None:
    root, call = folder_at(prefix), s3_bucket.Bucket.call
    assert isinstance(root, BucketFolder)
    names = ["living", *["step-00000001"] * 3, *["step-00000002"] * 2]
    for name in names:
        root._bucket.call("create_multipart_upload", Key=(root / name)._key("rank-0"))
    with monkeypatch.context() as patch:
        patch.setattr(s3_bucket, "PAGE", 2)
        if as_s3:
            patch.setattr(
                s3_bucket.Bucket, "call", lambda self, *what, **how: in_pages(partial(call, self), *what, **how)
            )
        root.sweep(lambda name: name != "living")
    assert uploads(root) == [(root / "living")._key("rank-0")]


def test_changes_of_stored_files_are_noticed_or_harmless(prefix: str) -> None:
    path, values, random_ = folder(folder_at(prefix), 1), torch.randn(6, 5), random.Random(3)
    manifest = save(path, values, 1)
    for _ in range(CHANGES):
        name = random_.choice([MANIFEST, *manifest.files])
        content = path.read(name)
        at = random_.randrange(len(content))
        flipped = content[:at] + bytes([content[at] ^ random_.randrange(1, 256)]) + content[at + 1 :]
        path.publish(name, content[:at] if random_.random() < 0.5 else flipped)
        try:
            assert torch.equal(loaded(path, values), values) and name == MANIFEST
        except CheckpointCorrupt as error:
            assert name in str(error)
        finally:
            path.publish(name, content)
    path.remove("rank-1")
    with pytest.raises(CheckpointCorrupt, match="rank-1"):
        loaded(path, values)


def trained(found: restore.Restored | None) -> Any:
    """The training state of what was restored."""
    return None if found is None else found.manifest.training


@pytest.fixture
def alone() -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_corrupt_checkpoint_is_skipped(prefix: str, alone: None) -> None:
    root, values, warned = folder_at(prefix), torch.randn(6, 5), []
    save(folder(root, 1), values, 1)
    save(folder(root, 2), -values, 2)
    folder(root, 2).publish("rank-0", folder(root, 2).read("rank-0")[:-1])
    found = piece(torch.zeros_like(values))
    seen: list[Any] = []
    warn, accept = (lambda *said, to=to: to.append(said) for to in (warned, seen))
    assert trained(restore.restore(root, None, [found], warn, accept)) == {"step": 1}
    assert [(manifest.step, own) for manifest, own in seen] == [(1, True)], "it is the job's own"
    assert torch.equal(found.tensor, values)
    [(cause, message, step)] = warned
    assert (cause, step) == ("checkpoint_corrupt", 2) and "step-00000001" in message


def test_a_checkpoint_to_resume_may_be_named_by_the_folder_that_holds_it(prefix: str, alone: None) -> None:
    root, values = folder_at(prefix), torch.randn(6, 5)
    save(folder(root / "source", 7), values, 7)
    found = piece(torch.zeros_like(values))

    def refuse(manifest: Manifest, own: bool) -> None:
        assert (manifest.training, own) == ({"step": 7}, False)
        raise ValueError("other data")

    with pytest.raises(ValueError, match="other data"):
        restore.restore(root / "job", root / "source", [found], nothing, refuse)
    assert not found.tensor.any(), "it is refused before a tensor is read"
    assert trained(restore.restore(root / "job", root / "source", [found], nothing, nothing)) == {"step": 7}
    assert torch.equal(found.tensor, values)


@pytest.fixture
def door(prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """A way to the server that is shut."""
    door = Door()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{door.port}")
    yield door
    door.close()


def test_a_bucket_that_comes_back_is_waited_for(
    prefix: str, door: Door, buckets: Buckets, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, values, warned = folder_at(prefix), torch.randn(6, 5), []
    monkeypatch.setattr(restore, "BACKOFF_S", (0.1, 0.1, 0.1))

    def warn(cause: str, message: str) -> None:
        warned.append((cause, message))
        door.server = buckets.port  # it answers from now on
        save(folder(root, 3), values, 3)

    found = piece(torch.zeros_like(values))
    assert trained(restore.restore(root, None, [found], warn, nothing)) == {"step": 3}
    assert torch.equal(found.tensor, values)
    ((cause, message),) = warned
    assert cause == "storage_unreachable" and "s3://checkpoints" in message and "trying again" in message


def test_a_manifest_counts_when_its_answer_alone_was_lost(
    prefix: str, door: Door, buckets: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_bucket, "TRIES", 1)
    monkeypatch.setattr(s3_bucket, "READ_TRIES", 1)
    root = folder_at(prefix)
    door.server, door.loses = buckets.port, 1
    root.publish(MANIFEST, b"{}")
    assert door.loses == 0 and root.read(MANIFEST) == b"{}"
    door.loses = 99  # also those to the look at what arrived
    with pytest.raises(StorageUnreachable):
        root.publish(MANIFEST, b"[]")


def test_a_bucket_that_stays_away_is_neither_empty_nor_damaged(
    prefix: str, door: Door, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, values = folder_at(prefix), torch.randn(2, 2)
    monkeypatch.setattr(restore, "BACKOFF_S", ())
    for ask in (lambda: complete(root), lambda: read(root), lambda: root.write("a", memoryview(b"a"))):
        with pytest.raises(StorageUnreachable) as caught:
            ask()
        assert caught.value.passing and not isinstance(caught.value, CheckpointCorrupt)
    with pytest.raises(StorageUnreachable):
        restore.restore(root, None, [piece(values)], nothing, nothing)


def test_a_server_that_never_answers_is_given_up(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_bucket, "READ_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StorageUnreachable):
            folder_at(prefix).has("a")


def test_who_may_not_and_what_is_not_there_is_said_at_once(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageDenied, match="no-such-bucket does not exist"):
        complete(folder_at("s3://no-such-bucket/a"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    with pytest.raises(StorageDenied, match="give the workers credentials") as refused:
        complete(folder_at(prefix))
    assert "geheim" not in str(refused.value) and not refused.value.passing


def test_a_folder_made_here_appears_with_its_last_file(prefix: str, tmp_path: Path) -> None:
    out = folder_at(prefix) / "export"
    with pytest.raises(ValueError, match="cut off"), out.filled(last="config.json") as local:
        (local / "model").write_bytes(b"weights")
        raise ValueError("cut off")
    assert out.files() == {} and not local.exists()
    with out.filled(last="config.json") as local:
        (local / "config.json").write_bytes(b"{}")
        (local / "model").write_bytes(b"weights")
        (local / "empty").write_bytes(b"")
    assert out.files() == {"config.json": 2, "empty": 0, "model": 7} and not local.exists()
    with pytest.raises(FileExistsError, match="not an empty folder"), out.filled(last="config.json"):
        raise AssertionError


def test_what_killed_processes_have_left_on_this_disk_goes_with_the_next_folder_of_any_address(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is as large as a model, and no one exports the same checkpoint again."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (folder_at(prefix) / "export").filled(last="config.json") as used:
        (used / "model").write_bytes(b"weights")
        left = used.with_name(f"{used.name[:-8]}killed00")
        left.mkdir()
        (left / "model").write_bytes(b"weights")
        with (folder_at(prefix) / "another").filled(last="config.json") as other:
            (other / "config.json").write_bytes(b"{}")
            assert {*tmp_path.iterdir()} == {used, other}
    assert [*tmp_path.iterdir()] == [] and (folder_at(prefix) / "export").files() == {"model": 7}


def test_each_part_of_a_folder_made_here_beats(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_bucket, "BLOCK_BYTES", 5 << 20)
    beats: list[int] = []
    with (folder_at(prefix) / "export").filled("config.json", lambda: beats.append(1)) as local:
        (local / "config.json").write_bytes(b"{}")
        (local / "model").write_bytes(bytes(11 << 20))
        assert not beats
    assert len(beats) == 4
