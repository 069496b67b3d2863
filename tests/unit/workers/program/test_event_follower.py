"""What a program writes for TensorBoard until its end is taken, and what cannot be taken is a line of the log."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.metric_block import MetricBlock, columns
from shardyard.workers.program import event_follower
from shardyard.workers.program.event_follower import following

WRITER = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

def write(writer, tag, step, value):
    writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])))

writer = EventFileWriter("runs")
"""


def followed(tmp_path: Path, script: str) -> dict[str, list[tuple[int, float | None]]]:
    """The metrics that came of a program, which finds a file `seen` when some have come."""
    found: dict[str, list[tuple[int, float | None]]] = {}

    def take(blocks: list[MetricBlock]) -> None:
        for name, pairs in (column for block in blocks for column in columns(block)):
            found.setdefault(name, []).extend(pairs)
        (tmp_path / "seen").touch()

    before, since = set(threading.enumerate()), time.time()
    process = subprocess.Popen([sys.executable, "-c", WRITER + script], cwd=tmp_path)
    with process, following(tmp_path / "runs", process.pid, since, take):
        try:
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    assert set(threading.enumerate()) <= before, "others may end meanwhile"
    return found


def test_all_that_was_written_is_taken_at_the_end(tmp_path: Path) -> None:
    """Also values without a step, which are counted, of this start only."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / f"events.out.tfevents.1700000000.{os.uname().nodename}.7.0").write_bytes(
        b"of an earlier start"
    )
    script = """
for step in range(30_000):
    write(writer, "loss", step, step / 2)
for value in range(3):
    write(writer, "acc", 0, value)
other = EventFileWriter("runs/eval")
write(other, "loss", 7, 1)
writer.close(), other.close()
"""
    found = followed(tmp_path, script)
    assert found["loss"] == [(step, step / 2) for step in range(30_000)]
    assert {name: found[name] for name in found if name != "loss"} == {
        "acc": [(0, 0.0), (1, 1.0), (2, 2.0)],
        "eval/loss": [(7, 1.0)],
    }


def test_values_are_taken_while_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_follower, "LOOK_S", 0.05)
    script = """
import pathlib, time
for step in range(3):
    write(writer, "loss", step, 1)
    writer.flush()
    while not pathlib.Path("seen").exists():
        time.sleep(0.01)
    pathlib.Path("seen").unlink()
writer.close()
"""
    assert followed(tmp_path, script) == {"loss": [(0, 1.0), (1, 1.0), (2, 1.0)]}


def test_what_no_metric_can_be_is_left_out_with_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = """
write(writer, "a" * 201, 1, 1), write(writer, "a" * 201, 2, 1), write(writer, "b", -1, 1), write(writer, "good", 1, 1)
writer.close()
"""
    assert followed(tmp_path, script) == {"good": [(1, 1.0)]}
    name, step = capfd.readouterr().err.splitlines()
    assert "scalar 'aaa" in name and "is not a name of 1 to 200" in name
    assert step == f"shardyard: scalar 'b' is left out: -1 is not a whole number from 0 to {2**53 - 1}"


def test_a_damaged_file_is_not_followed_any_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = """
import pathlib
write(writer, "good", 1, 1)
writer.close()
(path,) = pathlib.Path("runs").iterdir()
path.write_bytes(path.read_bytes() + bytes(100))
"""
    assert followed(tmp_path, script) == {"good": [(1, 1.0)]}
    assert "is not followed any more: no record at byte" in capfd.readouterr().err


def test_without_the_package_the_program_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    assert followed(tmp_path, 'write(writer, "loss", 1, 1), writer.close()') == {}
    warning = capfd.readouterr().err
    assert warning.count("\n") == 1 and "tensorboard cannot be imported" in warning and warning.endswith("install it\n")


def test_more_files_than_are_followed_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_follower, "MOST_FILES", 1)
    followed(tmp_path, "writer.close()")
    assert "further ones are left out" in capfd.readouterr().err


def test_the_end_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_follower, "END_S", 0.0)
    monkeypatch.setattr(event_follower, "LOOK_S", PATIENCE_S)
    followed(tmp_path, 'write(writer, "loss", 1, 1), writer.close()')
    assert "was not all read within 0 s" in capfd.readouterr().err


def test_a_job_without_a_folder_has_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with following(None, os.getpid(), time.time(), lambda _: None):
        assert set(threading.enumerate()) <= before
