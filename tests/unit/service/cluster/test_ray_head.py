import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shardyard.service.cluster.ray_head import LONGEST_FOLDER, Head, HeadError, Process, Record, lives, marked


def process(pid: int) -> Process:
    return Process(pid, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))


def test_a_head_lives_only_as_the_very_processes_that_were_written_down() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    me = process(os.getpid())
    record = Record("/nowhere", boot, "127.0.0.1:1", raylet=me, gcs=me)
    assert lives(record)
    assert not lives(replace(record, gcs=replace(me, started=me.started + 1)))
    assert not lives(replace(record, boot="another boot"))
    assert not lives(replace(record, raylet=None))


def test_a_zombie_does_not_live() -> None:
    child = subprocess.Popen(["true"])
    own = process(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    record = Record("/nowhere", Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "a:1", own, own)
    assert not lives(record)
    child.wait()


def test_processes_are_found_by_the_whole_mark(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], env={"SHARDYARD_NODE": str(tmp_path)}) as child:
        try:
            # In the midst of its exec a process shows no environment yet, though Popen has returned.
            while not Path(f"/proc/{child.pid}/environ").read_bytes():
                time.sleep(0.001)
            assert marked(str(tmp_path)) == {process(child.pid)}
            assert marked(str(tmp_path)[:-1]) == set()
        finally:
            child.kill()


@pytest.mark.parametrize("long", [False, True])
def test_sockets_fit_below_the_folder(tmp_path: Path, long: bool) -> None:
    short = Path(os.fsdecode(subprocess.check_output(["mktemp", "-d", "/tmp/sh-XXXX"]).strip()))
    data = tmp_path / ("x" * 60) if long else short
    data.mkdir(exist_ok=True)
    folder = Head(data)._make_folder()
    try:
        assert len(str(folder)) <= LONGEST_FOLDER
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (data / "ray").resolve() == folder
        assert (data / "ray").is_symlink() == long
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(short)


def test_a_data_folder_without_a_head_has_nothing_to_end(tmp_path: Path) -> None:
    Head(tmp_path / "none").shut_down()
    assert not (tmp_path / "none").exists()
    Head(tmp_path).shut_down()


def test_the_trainers_environment_holds_no_secret_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDYARD_DATABASE_URL", "postgresql+psycopg://user:secret@host/db")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    env = Head(tmp_path)._marked_environment(tmp_path)
    assert "SHARDYARD_DATABASE_URL" not in env and "RAY_ADDRESS" not in env
    assert env["SHARDYARD_NODE"] == str(tmp_path) and env["RAY_AUTH_MODE"] == "token"


def test_a_start_that_failed_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that was free may be another's a moment later."""
    tries = []

    def start(_: Head, record: Record, folder: Path, env: dict[str, str]) -> Record:
        tries.append(folder)
        if len(tries) < 2:
            raise HeadError("Address already in use")
        return replace(record, address="127.0.0.1:1")

    monkeypatch.setattr(Head, "_start_ray", start)
    assert Head(tmp_path).ensure().address == "127.0.0.1:1"
    assert len(tries) == 2
