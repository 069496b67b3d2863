"""A file's content in blocks, also of one that becomes shorter meanwhile."""

from pathlib import Path

import pytest

from shardyard.workers.storage import file_content
from shardyard.workers.storage.file_content import FileContent


def test_blocks_and_slices_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_content, "BLOCK_BYTES", 3)
    (tmp_path / "file").write_bytes(b"0123456789")
    with (tmp_path / "file").open("rb") as file:
        content = FileContent(file.fileno(), 10)
        assert list(content) == [b"012", b"345", b"678", b"9"]
        assert (bytes(content), content[8:20], content[10:], content.nbytes) == (b"0123456789", b"89", b"", 10)


def test_a_file_that_becomes_shorter_is_an_error_and_no_signal(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(10_000))
    with (tmp_path / "file").open("r+b") as file:
        content = FileContent(file.fileno(), 10_000)
        file.truncate(5_000)
        assert content[:5_000] == bytes(5_000)
        with pytest.raises(OSError, match="became shorter"):
            bytes(content)
