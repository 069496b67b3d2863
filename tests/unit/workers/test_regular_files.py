"""Only regular files are opened, and none is waited for."""

import os
import socket
from pathlib import Path

import pytest

from shardyard.workers.regular_files import UnfitFile, opened, read


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def bound_socket(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    return folder / "socket"


def linked_device(folder: Path) -> Path:
    (folder / "link").symlink_to("/dev/zero")
    return folder / "link"


@pytest.mark.parametrize(
    ("make", "kind"),
    [(fifo, "a FIFO"), (bound_socket, "a socket"), (linked_device, "a device"), (lambda folder: folder, "a folder")],
)
def test_what_is_no_regular_file_is_refused_at_once(make, kind: str, tmp_path: Path) -> None:
    with pytest.raises(UnfitFile, match=kind) as refused:
        opened(make(tmp_path))
    assert (refused.value.code, bool(refused.value.remedy)) == ("not_a_file", True)


def test_a_name_that_comes_to_stand_for_a_fifo_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = fifo(tmp_path), tmp_path / "regular"
    other.touch()
    before = other.stat()
    monkeypatch.setattr(Path, "stat", lambda *_args, **_more: before)
    with pytest.raises(UnfitFile):
        opened(path)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (2 << 20))
    assert len(read(tmp_path / "a", 2 << 20)) == 2 << 20
    with pytest.raises(UnfitFile, match="larger than 1 MiB") as refused:
        read(tmp_path / "a", 1 << 20)
    assert refused.value.code == "file_too_large"


def test_a_file_that_names_no_size_is_read_up_to_its_limit() -> None:
    assert read(Path("/proc/self/status"), 1 << 20).startswith(b"Name:")
    with pytest.raises(UnfitFile, match="larger"):
        read(Path("/proc/self/status"), 3)
