"""A control plane's record is believed only while its process lives."""

import fcntl
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shardyard.api import pidfile
from shardyard.api.pidfile import Control, Lock


def test_written_and_read_back_while_the_process_lives(tmp_path: Path) -> None:
    me = Control.of_this_process("http://127.0.0.1:1")
    pidfile.write(tmp_path, me)
    assert pidfile.read(tmp_path) == me
    assert [path.name for path in tmp_path.iterdir()] == ["control.json"]
    pidfile.remove(tmp_path, me)
    assert pidfile.read(tmp_path) is None


def test_a_dead_process_is_no_control_plane(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        started = Control.of_this_process("").started
        pidfile.write(tmp_path, Control("http://127.0.0.1:1", process.pid, started + 3600))
        assert pidfile.read(tmp_path) is None  # the number is another process's now
    finally:
        process.kill()
        process.wait()
    pidfile.write(tmp_path, Control("http://127.0.0.1:1", process.pid, started))
    assert pidfile.read(tmp_path) is None


def test_a_step_of_the_clock_ends_no_control_plane(tmp_path: Path) -> None:
    me = Control.of_this_process("http://127.0.0.1:1")
    for step_s in (-3600.0, 3.0):
        before = replace(me, started=me.started - step_s)  # the kernel adds the step to when a process started
        pidfile.write(tmp_path, before)
        assert pidfile.read(tmp_path) == before


def test_a_number_of_another_process_or_boot_is_no_control_plane(tmp_path: Path) -> None:
    me = Control.of_this_process("http://127.0.0.1:1")
    assert me.ticks is not None
    for other in (replace(me, ticks=me.ticks + 1), replace(me, boot="another boot"), replace(me, boot=None)):
        pidfile.write(tmp_path, other)
        assert pidfile.read(tmp_path) is None


def test_a_control_plane_of_an_earlier_version_is_found(tmp_path: Path) -> None:
    me = Control.of_this_process("http://127.0.0.1:1")
    record = {"url": me.url, "pid": me.pid, "started": me.started, "token_path": None}
    (tmp_path / "control.json").write_text(json.dumps(record))
    assert pidfile.read(tmp_path) == replace(me, ticks=None, boot=None)
    (tmp_path / "control.json").write_text(json.dumps({**record, "started": me.started + 3600}))
    assert pidfile.read(tmp_path) is None


def test_rubbish_is_no_control_plane(tmp_path: Path) -> None:
    for text in ("", "{", "[]", json.dumps({"url": "x"}), json.dumps({"url": 1, "pid": "x", "started": None})):
        (tmp_path / "control.json").write_text(text)
        assert pidfile.read(tmp_path) is None


def test_another_ones_record_is_left(tmp_path: Path) -> None:
    first, second = Control.of_this_process("http://127.0.0.1:1"), Control.of_this_process("http://127.0.0.1:2")
    pidfile.write(tmp_path, second)
    pidfile.remove(tmp_path, first)
    assert pidfile.read(tmp_path) == second


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = Lock(tmp_path), Lock(tmp_path)
    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()
    second.release()


def test_a_look_at_the_lock_neither_keeps_it_nor_refuses_it_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not Lock.is_taken(tmp_path)
    looks, mine = Lock(tmp_path), Lock(tmp_path)
    assert looks._tried(fcntl.LOCK_SH)
    monkeypatch.setattr(pidfile.time, "sleep", lambda _: looks.release())
    assert mine.take()
    assert Lock.is_taken(tmp_path)
    mine.release()


def test_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from shardyard.api.pidfile import Lock\n"
        f"lock = Lock(Path({str(tmp_path)!r})); print(lock.take(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "True\n"
            mine = Lock(tmp_path)
            assert not mine.take()
        finally:
            holder.kill()
    assert mine.take()
    mine.release()
