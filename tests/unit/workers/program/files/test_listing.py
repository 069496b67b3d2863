"""Listings: names come from the source, and become paths only if they are fit for that."""

import pytest

from shardyard.workers.messages import json_codec
from shardyard.workers.program.files import listing as module
from shardyard.workers.program.files.errors import FilesNotFetched
from shardyard.workers.program.files.listing import Listing, RemoteFile, checked


def listing(*paths: str) -> Listing:
    return Listing("s3://bucket/a", tuple(RemoteFile(path, 3, "etag:x") for path in paths))


def test_equal_contents_have_equal_digests() -> None:
    one = listing("a", "b/c")
    assert checked(one).digest == listing("a", "b/c").digest != listing("a", "b/d").digest
    assert one.bytes == 6 and json_codec.loads(Listing, json_codec.dumps(one)) == one


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../up", "a//b", "a/./b", "a/", "line\nbreak", "x" * 256, "a/" * 600 + "b"]
)
def test_a_name_that_leaves_the_folder_is_refused(path: str) -> None:
    with pytest.raises(FilesNotFetched, match="unfit as the name of a file"):
        checked(listing("a", path))


def test_a_file_is_no_folder() -> None:
    with pytest.raises(FilesNotFetched, match="'a/b/c' is below a file of that name"):
        checked(listing("a/b", "a/b/c"))


def test_nothing_and_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FilesNotFetched, match="no such file"):
        checked(listing())
    monkeypatch.setattr(module, "MOST_FILES", 2)
    with pytest.raises(FilesNotFetched, match="more than 2 files"):
        checked(listing("a", "b", "c"))
