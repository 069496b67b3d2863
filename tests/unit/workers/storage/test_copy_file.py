"""A copy has the content of its file, and takes no second room where the storage can do without."""

import errno
import os
from pathlib import Path

import pytest

from shardyard.workers.storage import s3_bucket
from shardyard.workers.storage.copy_file import copy_file
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.storage.open_folder import folder_at


@pytest.mark.parametrize("bytes_in_parts", [False, True])
def test_a_copy_has_the_content_of_another_folders_file(
    root: Folder, bytes_in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = os.urandom(6 << 20)
    if bytes_in_parts:
        monkeypatch.setattr(s3_bucket, "COPIED_BYTES", 5 << 20)  # S3 takes no smaller part but the last
    for name, content in (("small", b"abc"), ("large", large), ("empty", b"")):
        (root / "from").write(name, memoryview(content))
        copy_file(root / "to", f"{name}-2", root / "from", name, len(content))
    (root / "from").remove_all()
    assert (root / "to").files() == {"small-2": 3, "large-2": 6 << 20, "empty-2": 0}
    assert (root / "to").read("small-2") == b"abc" and (root / "to").read("large-2") == large
    with pytest.raises(FileNotFoundError):
        copy_file(root / "to", "none", root / "from", "missing", 1 << 20)


def test_a_copy_between_kinds_of_storage(prefix: str, tmp_path: Path) -> None:
    content = os.urandom(100_000)
    local, bucket = LocalFolder(str(tmp_path)), folder_at(prefix)
    local.write("a", memoryview(content))
    copy_file(bucket, "b", local, "a", len(content))
    copy_file(local, "c", bucket, "b", len(content))
    assert local.read("c") == content


@pytest.mark.parametrize("error", [None, errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSPC])
def test_a_large_file_is_linked_where_that_is_possible(
    error: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small one is always copied: its writer may write it again."""

    def refused(*_: object) -> None:
        raise OSError(error, "no link")

    folder = LocalFolder(str(tmp_path))
    for name, size in (("small", 1 << 10), ("large", 1 << 20)):
        folder.write(name, memoryview(bytes(size)))
    if error is not None:
        monkeypatch.setattr(os, "link", refused)
    copy_file(folder / "to", "small", folder, "small", 1 << 10)
    if error == errno.ENOSPC:
        with pytest.raises(OSError, match="no link"):
            copy_file(folder / "to", "large", folder, "large", 1 << 20)
        return
    copy_file(folder / "to", "large", folder, "large", 1 << 20)
    assert (folder / "to").files() == {"small": 1 << 10, "large": 1 << 20}
    same = [Path(tmp_path, "to", name).samefile(tmp_path / name) for name in ("small", "large")]
    assert same == [False, error is None]
