"""A file is there whole or not at all, whatever interrupts its writer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardyard.workers.atomic_files import write_whole


def broken() -> Iterator[bytes]:
    yield b"half of"
    raise OSError("no space left on device")


def test_blocks_become_one_file_and_replace_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for blocks in ([b"a", b"b", b""], [memoryview(b"new")]):
        write_whole(path, blocks)
        assert path.read_bytes() == b"".join(bytes(block) for block in blocks)
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for before in (None, b"old"):
        if before is not None:
            path.write_bytes(before)
        with pytest.raises(OSError, match="no space left"):
            write_whole(path, broken())
        assert (path.read_bytes() if path.exists() else None) == before
        assert list(tmp_path.iterdir()) == ([] if before is None else [path])


def test_the_rest_of_a_dead_writer_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file.partial").write_bytes(b"a longer rest of a dead writer")
    write_whole(tmp_path / "file", [b"new"])
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"file": b"new"}
