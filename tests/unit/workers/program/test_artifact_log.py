"""`shardyard.log_artifact` and the like: files of a real process are stored whole by its trainer process, and never hurt the program."""

import hashlib
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.program import artifact_uploads
from shardyard.workers.program.agents import listening
from shardyard.workers.program.artifact_uploads import ArtifactUploads, LoggedFile, Refused
from shardyard.workers.program.program import ArtifactStorage

from .test_metric_log import logged_by

LIMITS = ArtifactStorage("", "", file_bytes=1000, bytes=5000, files=100)


class Rank:
    """A rank's trainer process, as far as it takes files."""

    def __init__(self, root: Path, **limits: Any) -> None:
        self.storage, self.spool = root / "storage", root / "spool"
        given = replace(LIMITS, address=str(self.storage), spool=str(self.spool), **limits)
        self.stored: list[Artifact] = []
        self.uploads = ArtifactUploads(
            given, lambda files, size: files <= given.files and size <= given.bytes, self.store
        )

    def store(self, stored: Sequence[Artifact]) -> None:
        self.stored += stored

    def run(self, script: str, **env: str) -> str:
        """Run a program to its end; what it wrote to stderr."""
        with listening(lambda *_: None, artifacts=self.uploads) as agents:
            done = logged_by(script, agents.name, **env)
            assert done.returncode == 0, done.stderr
            agents.finish()
            self.uploads.flush(lambda: False)
        return done.stderr

    def content(self, name: str, step: int | None = None) -> bytes:
        (one,) = [one for one in self.stored if (one.name, one.step) == (name, step)]
        found = (self.storage / one.sha256).read_bytes()
        assert (hashlib.sha256(found).hexdigest(), len(found)) == (one.sha256, one.bytes)
        return found


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def test_files_images_and_tables_are_stored_as_they_were_at_the_call(rank: Rank, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"weights")
    folder = tmp_path / "model"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"")
    (folder / "deep" / "b.txt").write_bytes(b"weights")
    script = f"""
import os, numpy
os.chdir({str(tmp_path)!r})
assert shardyard.log_artifact("weights.pt")
os.remove("weights.pt")
assert shardyard.log_artifact("model", "models/last", step=2)
assert shardyard.log_image("samples", numpy.zeros((2, 2, 3)), step=3)
assert shardyard.log_table("errors", ["a", "b"], [[1, "x"]], step=3)
"""
    assert rank.run(script) == ""
    assert (rank.content("weights.pt"), rank.content("models/last/a.txt", 2)) == (b"weights", b"")
    assert rank.content("models/last/deep/b.txt", 2) == b"weights" and rank.content("errors", 3) == b"a,b\r\n1,x\r\n"
    assert rank.content("samples", 3).startswith(b"\x89PNG")
    assert [one.type for one in rank.stored] == ["file", "file", "file", "image", "table"]
    assert len(list(rank.storage.iterdir())) == 4, "equal files are stored once"
    assert not list(rank.spool.iterdir())


def test_what_is_not_taken_is_a_line_of_the_log(rank: Rank, tmp_path: Path) -> None:
    """Missing and large files, devices, FIFOs, and links in folders; all others of the folder are stored."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "good").write_bytes(b"1")
    (folder / "large").write_bytes(bytes(1001))
    (folder / "secret").symlink_to("/etc/passwd")
    (folder / "new\nline").write_bytes(b"1")
    os.mkfifo(folder / "fifo")
    script = f"""
for path in ("/dev/zero", "/no/such/file", {str(folder)!r}):
    assert not shardyard.log_artifact(path, "x")
for name in ("../up", "/abs", "a\\\\b"):
    try:
        shardyard.log_artifact("/etc/hostname", name)
    except ValueError:
        continue
    raise SystemExit(1)
"""
    lines = rank.run(script).splitlines()
    assert [(one.name, one.bytes) for one in rank.stored] == [("x/good", 1)]
    for part in ("no regular file", "No such file", "1,000 bytes", "a link", "printable", "fifo"):
        assert any(part in line for line in lines), (part, lines)


def test_a_folder_of_which_something_is_left_out_was_not_taken_whole(rank: Rank, tmp_path: Path) -> None:
    """Links, also to folders, and a folder without files: False, and few lines, however many there are."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "empty").mkdir()
    (folder / "good").write_bytes(b"1")
    (folder / "linked").symlink_to("/etc")
    for number in range(20):
        (folder / f"link{number}").symlink_to("good")
    lines = rank.run(f"""
assert not shardyard.log_artifact({str(folder)!r}, "x")
assert not shardyard.log_artifact({str(tmp_path / "empty")!r})
""").splitlines()
    assert [one.name for one in rank.stored] == ["x/good"]
    assert len(lines) == 7 and sum("a link in a folder" in line for line in lines) == 5, lines
    assert "16 more files" in lines[5] and "empty: the folder has no files" in lines[6]


def test_ten_thousand_files_are_refused_with_one_line(rank: Rank, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(101):
        (folder / str(number)).touch()
    said = rank.run(f"assert not shardyard.log_artifact({str(folder)!r})").splitlines()
    assert len(said) == 1 and "101 files are more than 100" in said[0] and not rank.stored


def test_a_signal_handler_may_log_within_a_call_that_it_interrupts(
    rank: Rank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes while the call waits for its answer, which is another than the handler's."""
    usual, pid = rank.uploads.add, tmp_path / "pid"

    def add(descriptor: int, files: list[LoggedFile]) -> None:
        if files[0].name == "refused":
            os.kill(int(pid.read_text()), signal.SIGUSR1)
            os.close(descriptor)
            raise Refused("no")
        usual(descriptor, files)

    monkeypatch.setattr(rank.uploads, "add", add)
    script = f"""
import os, pathlib, signal
signal.alarm(20)  # ends a program that waits for itself
handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(shardyard.log_table("handled", ["a"], [])))
pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))
assert [shardyard.log_table(name, ["a"], []) for name in ("first", "refused", "last")] == [True, False, True]
assert handled == [True]
"""
    assert "refused: no" in rank.run(script)
    assert [one.name for one in rank.stored] == ["first", "handled", "last"]


def test_outside_a_job_nothing_is_stored_and_names_are_checked(tmp_path: Path) -> None:
    done = logged_by(
        "assert shardyard.log_artifact('/etc/hostname') is False; shardyard.log_image('a/../b', b'')", None
    )
    assert done.returncode == 1 and "ValueError" in done.stderr


def test_a_program_whose_job_takes_no_files_runs_on(tmp_path: Path) -> None:
    with listening(lambda *_: None) as agents:
        done = logged_by("assert not shardyard.log_artifact('/etc/hostname')", agents.name)
    assert done.returncode == 0 and "was not logged" in done.stderr


def test_a_storage_that_hangs_stalls_the_program_and_its_end_only_so_long(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_uploads, "ROOM_S", 0.05)
    monkeypatch.setattr(artifact_uploads, "FLUSH_S", 0.2)
    monkeypatch.setattr(artifact_uploads, "MOST_WAITING", 2)
    rank.uploads._opened = lambda: __import__("threading").Event().wait()  # type: ignore[assignment,method-assign,return-value]
    script = "print([shardyard.log_table('t', ['a'], [], step=n) for n in range(9)].count(False))"
    said = rank.run(script)
    assert "storage is slower" in said and not rank.stored
    assert not list(rank.spool.iterdir())
