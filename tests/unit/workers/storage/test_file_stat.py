"""A file that is published again has another tag, in a folder and in a bucket."""

import pytest

from shardyard.workers.storage.file_stat import file_stat
from shardyard.workers.storage.folder import Folder


def test_a_tag_changes_with_the_content_and_not_with_another_file(root: Folder) -> None:
    root.publish("a", b"one")
    first = file_stat(root, "a")
    root.publish("b", b"other")
    assert file_stat(root, "a") == first and first.bytes == 3
    root.publish("a", b"two")
    assert file_stat(root, "a").etag != first.etag
    with pytest.raises(FileNotFoundError):
        file_stat(root, "missing")
