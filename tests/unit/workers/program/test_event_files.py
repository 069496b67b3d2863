"""Event files of real writers, and of TensorFlow's as they are: which are read, how far, and what is a scalar."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.util.tensor_util import make_tensor_proto

from shardyard.workers.program import event_files
from shardyard.workers.program.event_files import EventFile, EventFileInvalid, EventFolder, Processes

#: A process that is not below this one.
OTHER = 1


def record(event: Event) -> bytes:
    data = event.SerializeToString()
    header = struct.pack("<Q", len(data))
    return header + struct.pack("<I", masked_crc32c(header)) + data + struct.pack("<I", masked_crc32c(data))


def scalar(tag: str, step: int, value: float) -> bytes:
    return record(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])))


def name(pid: int | str = "", host: str = "", at: float = 0.0) -> str:
    parts = ["events.out.tfevents", f"{int(at or time.time()):010d}", host or socket.gethostname(), str(pid), "0"]
    return ".".join(parts if pid else parts[:3])


@pytest.fixture
def folder(tmp_path: Path) -> EventFolder:
    return EventFolder(tmp_path, Processes(os.getpid()), time.time())


def found(folder: EventFolder) -> list[str]:
    folder.look()
    return sorted(str(path.relative_to(folder.folder)) for path in folder.files)


def read(folder: EventFolder) -> list[tuple[str, int, float]]:
    folder.look()
    return [(file.prefix + tag, step, value) for file in folder.files.values() for tag, step, value in file.scalars()]


def test_all_that_torchs_writer_writes_as_scalars_is_read_once(folder: EventFolder) -> None:
    import torch
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder.folder)) as writer:
        writer.add_scalar("loss", 0.5, 3)
        writer.add_scalar("tensor", 1.5, 3, new_style=True)
        writer.add_histogram("weights", torch.ones(9), 3)
        writer.add_image("image", torch.zeros(3, 400, 400), 3)
        writer.add_text("text", "hello", 3)
        writer.add_scalars("both", {"x": 1.0, "y": 2.0}, 4)
        writer.flush()
        first = read(folder)
        assert sorted(first) == [("both_x/both", 4, 1.0), ("both_y/both", 4, 2.0), ("loss", 3, 0.5), ("tensor", 3, 1.5)]
        writer.add_scalar("loss", 0.25, 4)
        writer.flush()
        assert (read(folder), read(folder)) == ([("loss", 4, 0.25)], [])


def test_a_writer_that_does_not_name_its_process_is_known_by_its_open_file(folder: EventFolder) -> None:
    import tensorboardX

    with tensorboardX.SummaryWriter(str(folder.folder / "x")) as writer:
        writer.add_scalar("loss", 0.5, 3)
        (folder.folder / name()).touch()
        folder.look()
    assert read(folder) == [("x/loss", 3, 0.5)]


def test_tensors_are_scalars_if_their_first_value_says_it(tmp_path: Path) -> None:
    """TensorFlow writes the plugin once for each tag, and numbers of several types, in several fields."""

    def event(step: int, tag: str, plugin: str, tensor: Any) -> bytes:
        value = Summary.Value(tag=tag, tensor=tensor)
        value.metadata.plugin_data.plugin_name = plugin
        return record(Event(step=step, summary=Summary(value=[value])))

    path = tmp_path / "file"
    packed = make_tensor_proto([2.5], dtype="float32")
    packed.ClearField("float_val")
    packed.tensor_content = struct.pack("<f", 2.5)
    path.write_bytes(
        event(1, "a", "scalars", make_tensor_proto(1.5))
        + event(2, "a", "", packed)
        + event(1, "b", "histograms", make_tensor_proto(1.5))
        + event(2, "b", "", make_tensor_proto(1.5))
        + event(1, "c", "scalars", make_tensor_proto([1.0, 2.0]))
        + event(1, "d", "scalars", make_tensor_proto(7))
        + event(1, "e", "scalars", make_tensor_proto("text"))
    )
    assert list(EventFile(path, "").scalars()) == [("a", 1, 1.5), ("a", 2, 2.5), ("d", 1, 7.0)]


def test_only_files_of_own_processes_since_the_start_on_this_host_are_read(folder: EventFolder) -> None:
    own, now = os.getpid(), time.time()
    mine = f"sub/{name(own)}"
    (folder.folder / "sub").mkdir()
    for file in (name(OTHER), name(own, at=now - 100), name(own, "elsewhere"), name(), "events.txt", mine):
        (folder.folder / file).touch()
    (folder.folder / "link").symlink_to(folder.folder / "sub")
    assert found(folder) == [mine]


def test_a_file_of_another_process_is_not_looked_at_for_ever(
    folder: EventFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.folder / name()).touch()
    asked: list[Path] = []
    monkeypatch.setattr(Processes, "have_open", lambda _, path: asked.append(path))
    for _ in range(5):
        folder.look()
    assert len(asked) == event_files.LOOKS


def test_there_is_a_limit_of_files(folder: EventFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "MOST_FILES", 2)
    for number in range(3):
        (folder.folder / f"{name(os.getpid())}.{number}").touch()
    assert len(found(folder)) == 2


@pytest.fixture
def family() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process and its child, which is in a session of its own."""
    script = "import subprocess, sys; c = subprocess.Popen(['sleep', '60'], start_new_session=True); print(c.pid, flush=True); c.wait()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        yield process, child
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_programs_processes_are_all_below_it(family: tuple["subprocess.Popen[str]", int]) -> None:
    """One that has ended is known until the files have been looked at: its last one may be newer than the look before."""
    parent, child = family
    processes = Processes(parent.pid)
    processes.look()
    assert parent.pid in processes and child in processes and OTHER not in processes
    os.kill(child, signal.SIGKILL)
    parent.wait(PATIENCE_S)
    known = []
    for _ in range(2):
        processes.look()
        known.append(child in processes)
        processes.forget()
    assert known == [True, False]


def test_a_record_is_read_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every length of the file, also if a record is larger than what is read at once."""
    monkeypatch.setattr(event_files, "_AT_ONCE", 48)
    path = tmp_path / "file"
    file = EventFile(path, "")
    path.touch()
    whole = scalar("a", 1, 0.5) + scalar("a long name" * 9, 2, 0.5) + scalar("c", 3, 0.5)
    seen = []
    for byte in range(len(whole)):
        with path.open("ab") as end:
            end.write(whole[byte : byte + 1])
        seen += list(file.scalars())
    assert [step for _, step, _ in seen] == [1, 2, 3]
    again = EventFile(path, "")
    assert [step for _, step, _ in again.scalars()] == [1, 2, 3]


def test_a_huge_record_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "_AT_ONCE", 64)
    monkeypatch.setattr(event_files, "MOST_RECORD", 200)
    path = tmp_path / "file"
    huge = record(Event(step=2, summary=Summary(value=[Summary.Value(tag="x" * 5000, simple_value=1.0)])))
    path.write_bytes(scalar("a", 1, 0.5) + huge[:300])
    file = EventFile(path, "")
    assert list(file.scalars()) == [("a", 1, 0.5)]
    with path.open("ab") as end:
        end.write(huge[300:] + scalar("b", 3, 0.5))
    assert list(file.scalars()) == [("b", 3, 0.5)]


def test_what_is_no_record_or_no_event_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(scalar("a", 1, 0.5) + bytes(64))
    seen = []
    with pytest.raises(EventFileInvalid, match="no record at byte"):
        seen.extend(EventFile(path, "").scalars())
    header = struct.pack("<Q", 3)
    path.write_bytes(header + struct.pack("<I", masked_crc32c(header)) + b"\xff\xff\xff" + bytes(4))
    with pytest.raises(EventFileInvalid, match="no event before byte 19"):
        list(EventFile(path, "").scalars())
