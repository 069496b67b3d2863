"""Files of a bucket by a real server over HTTP: pinned by their ETags, whole or refused."""

import os

import pytest
from harness.bucket import Buckets

from shardyard.workers.program.files import bucket_remote as module
from shardyard.workers.program.files.bucket_remote import BucketRemote
from shardyard.workers.program.files.errors import NOT_FETCHED, UNREACHABLE, FilesNotFetched
from shardyard.workers.program.files.listing import Listing, RemoteFile
from shardyard.workers.program.files.remote import Damaged
from shardyard.workers.program.files.source import parse
from shardyard.workers.storage import s3_bucket
from shardyard.workers.storage.open_folder import folder_at


def remote(text: str) -> BucketRemote:
    return BucketRemote(parse(text))


def content(source: BucketRemote, listing: Listing, file: RemoteFile) -> bytes:
    found = source.read(listing, file, 0, file.bytes)
    digest = source.digest(file)
    digest.update(found)
    source.verify(file, digest.hexdigest())
    return found


def put(where: str, value: bytes) -> None:
    folder, _, name = where.rpartition("/")
    folder_at(folder).write(name, memoryview(value))


def test_a_prefix_and_an_object(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a listing are followed; one object that was uploaded in parts has no MD5, and is asked for its ETag again."""
    monkeypatch.setattr(s3_bucket, "BLOCK_BYTES", 5 << 20)
    monkeypatch.setattr(s3_bucket, "PAGE", 2)
    large = os.urandom((5 << 20) + 1)
    for name, value in {"a/one": b"1", "a/b/two": b"22", "a/large": large, "ab/other": b"3"}.items():
        put(f"{prefix}/{name}", value)
    source = remote(f"{prefix}/a")
    listing = source.listing()
    assert [(file.path, file.bytes) for file in listing.files] == [("b/two", 2), ("large", len(large)), ("one", 1)]
    assert [content(source, listing, file) for file in listing.files] == [b"22", large, b"1"]
    one = remote(f"{prefix}/a/one").listing()
    assert one.single and [(file.path, file.name.rpartition("/")[2]) for file in one.files] == [("one", "one")]
    assert content(remote(f"{prefix}/a/one"), one, one.files[0]) == b"1"


def test_markers_of_folders_hide_no_file(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consoles make an object of no bytes for a folder. A listing that is cut after many of these would lack files."""
    for name in ("a/", "b/", "c"):
        put(f"{prefix}/{name}", b"")
    monkeypatch.setattr(module, "MOST_FILES", 1)
    with pytest.raises(FilesNotFetched, match="more than"):
        remote(prefix).listing()
    monkeypatch.setattr(module, "MOST_FILES", 3)
    assert [file.path for file in remote(prefix).listing().files] == ["c"]


@pytest.mark.parametrize(
    "value",
    [b"other", pytest.param(b"longer than before", marks=pytest.mark.full), pytest.param(b"", marks=pytest.mark.full)],
)
def test_an_object_that_changed_is_named(prefix: str, value: bytes) -> None:
    put(f"{prefix}/one", b"first")
    source = remote(prefix)
    listing = source.listing()
    put(f"{prefix}/one", value)
    with pytest.raises(FilesNotFetched, match=r"/one has changed since this job first read it; submit") as changed:
        content(source, listing, listing.files[0])
    assert changed.value.cause == NOT_FETCHED
    folder_at(prefix).remove("one")
    with pytest.raises(FilesNotFetched, match="/one has changed"):
        content(source, listing, listing.files[0])
    with pytest.raises(FilesNotFetched, match="no such file"):
        source.listing()


def test_other_bytes_of_the_same_object_are_damage(prefix: str) -> None:
    put(f"{prefix}/one", b"first")
    source = remote(prefix)
    with pytest.raises(Damaged):
        source.verify(source.listing().files[0], "0" * 32)


@pytest.mark.full
def test_credentials_and_buckets_that_do_not_fit_are_final(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FilesNotFetched, match=r"s3://no-such-bucket/a: .*does not exist") as refused:
        remote("s3://no-such-bucket/a").listing()
    assert refused.value.cause == NOT_FETCHED
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(FilesNotFetched, match="as secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        remote(f"{prefix}/a").listing()


@pytest.mark.full
def test_a_server_that_is_down_may_come_back(buckets: Buckets, prefix: str) -> None:
    put(f"{prefix}/one", b"first")
    source = remote(prefix)
    buckets.kill()
    try:
        with pytest.raises(FilesNotFetched) as failed:
            source.listing()
        assert failed.value.cause == UNREACHABLE
    finally:
        buckets.start()
    assert len(source.listing().files) == 1
