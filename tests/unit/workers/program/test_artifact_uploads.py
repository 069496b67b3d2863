"""The queue of logged files: equal on a folder and in a real bucket; what fails is a line, and the next file is stored."""

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.program import launch
from shardyard.workers.program.artifact_uploads import ArtifactUploads, LoggedFile, Refused
from shardyard.workers.program.program import ArtifactStorage, Program

LIMITS = ArtifactStorage("", "", file_bytes=1 << 20, bytes=1 << 30, files=1000)


def spooled(content: bytes) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return os.dup(file.fileno())


def files(*sizes: int) -> list[LoggedFile]:
    return [LoggedFile(f"f{at}", None, "file", sum(sizes[:at]), size) for at, size in enumerate(sizes)]


def uploads_to(folder: Path | str, stored: list[Artifact]) -> ArtifactUploads:
    def keep(found: Sequence[Artifact]) -> None:
        stored.extend(found)

    return ArtifactUploads(replace(LIMITS, address=str(folder)), lambda *_: True, keep)


def test_many_small_files_of_one_call_are_stored_and_equal_ones_once(tmp_path: Path) -> None:
    stored: list[Artifact] = []
    uploads = uploads_to(tmp_path / "new" / "folder", stored)
    uploads.add(spooled(b"ab" * 150), files(*[2] * 150))
    uploads.flush(lambda: False)
    assert [one.name for one in stored] == [f"f{at}" for at in range(150)]
    assert [file.name for file in (tmp_path / "new" / "folder").iterdir()] == [stored[0].sha256]


def test_what_a_message_misstates_is_refused(tmp_path: Path) -> None:
    uploads = uploads_to(tmp_path, [])
    for wrong in (files(4), files(-1), files(2 << 20)):
        descriptor = spooled(b"abc")
        with pytest.raises(Refused):
            uploads.add(descriptor, wrong)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


@pytest.mark.parametrize(
    "message",
    [
        b"[]",
        b"{}",
        b"3",
        b"[" * 100_000,
        b'[{"name": "a", "step": null, "type": "file", "offset": 1e400, "bytes": 1}]',
        b'[{"name": "a", "step": null, "type": "file", "offset": 0, "bytes": "1"}]',
    ],
)
def test_a_message_that_is_nonsense_is_refused(tmp_path: Path, message: bytes) -> None:
    uploads, descriptor = uploads_to(tmp_path, []), spooled(b"abc")
    refused = uploads._taken(message, descriptor)
    assert refused is not None and "not understood" in refused
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_limits_of_the_job_are_those_of_all_ranks(tmp_path: Path) -> None:
    used: list[int] = []

    def reserve(count: int, size: int) -> bool:
        used.append(size)
        return sum(used) <= 4

    uploads = ArtifactUploads(replace(LIMITS, address=str(tmp_path)), reserve, lambda _: None)
    uploads.add(spooled(b"abc"), files(3))
    with pytest.raises(Refused, match="a job may log"):
        uploads.add(spooled(b"ab"), files(2))


def test_a_file_is_given_back_also_while_another_rank_asks_for_too_much() -> None:
    class Store:
        def __init__(self) -> None:
            self.counted: Counter[str] = Counter()

        def add(self, key: str, amount: int) -> int:
            self.counted[key] += amount
            return self.counted[key]

    store: Any = Store()
    unused: Any = None
    uploads = launch._uploads(Program("job", ("true",), artifacts=replace(LIMITS, files=1)), store, unused, unused)
    assert uploads is not None
    assert uploads._reserve(1, 3) and not uploads._reserve(1, 3)
    store.add("shardyard/artifacts", 5)
    assert uploads._reserve(-1, -3)
    store.add("shardyard/artifacts", -5)
    assert set(store.counted.values()) == {0}


def test_a_storage_that_fails_loses_its_file_and_no_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "storage").write_text("no folder")
    stored: list[Artifact] = []
    uploads = uploads_to(tmp_path / "storage", stored)
    uploads.add(spooled(b"abc"), files(3))
    uploads.flush(lambda: False)
    assert not stored and "f0: " in (said := capfd.readouterr().err) and "not stored" in said
    (tmp_path / "storage").unlink()
    uploads.add(spooled(b"abc"), files(3))
    uploads.flush(lambda: False)
    assert [one.bytes for one in stored] == [3]


def test_the_end_of_a_job_waits_for_a_stuck_storage_only_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shardyard.workers.program.artifact_uploads.STOP_S", 0.05)
    uploads = uploads_to(tmp_path, [])
    uploads._on_stored = lambda _: threading.Event().wait()  # type: ignore[assignment,return-value]
    uploads.add(spooled(b"abc"), files(3))
    uploads.flush(lambda: True)
    assert "1 logged files were not stored" in capfd.readouterr().err


@pytest.mark.full
def test_a_bucket_has_the_same_files(prefix: str) -> None:
    from shardyard.workers.storage.open_folder import folder_at

    stored: list[Artifact] = []
    uploads = uploads_to(f"{prefix}/artifacts", stored)
    uploads.add(spooled(b"abcd"), files(1, 3, 0))
    uploads.flush(lambda: False)
    folder = folder_at(f"{prefix}/artifacts")
    assert [folder.read(one.sha256) for one in stored] == [b"a", b"bcd", b""]
