"""The ranks of a program on this machine, without a control plane: what they find, how they end, and that nothing is left."""

import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from shardyard.workers.program import event_follower
from shardyard.workers.program.local_ranks import LocalRun, run_locally
from shardyard.workers.program.program import Program, argv
from shardyard.workers.program.rank_output import RankOutput

#: Prints the variables that a rank is known by, and whether the others' store is there.
PLACE = (
    'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $SHARDYARD_JOB $TORCHELASTIC_USE_AGENT_STORE '
    'gpus=$CUDA_VISIBLE_DEVICES $MASTER_ADDR"'
)
#: Waits for SIGTERM. What it has started is in a session of its own.
WAITS = "trap 'echo saved; exit 0' TERM; setsid sleep 1000 & echo ready $!; while :; do sleep 0.05; done"
LOGS = """
import shardyard, sys
shardyard.log({"accuracy": 0.5, "lr": 1e-3}, step=3)
open("weights", "w").write("x")
shardyard.checkpoint("weights", step=3, folder=sys.argv[1])
print("resumes", shardyard.resume(folder=sys.argv[1]).step, "stored", shardyard.log_artifact("weights"))
"""


class Lines:
    """The output of a run, line by line. `on_line` is called with each on another thread."""

    def __init__(self, descriptor: int) -> None:
        self.found: list[str] = []
        self._pipe = os.fdopen(descriptor, encoding="utf-8")
        self._thread = threading.Thread(target=self._read)

    def on_line(self, line: str) -> None:
        pass

    def _read(self) -> None:
        with self._pipe:
            for line in self._pipe:
                self.found.append(line.rstrip("\n"))
                self.on_line(line)


@contextmanager
def printed(ranks: int, kind: type[Lines] = Lines) -> Iterator[tuple[RankOutput, Lines]]:
    """An output, and its lines, which are complete when the block has ended."""
    read, write = os.pipe()
    lines = kind(read)
    lines._thread.start()
    try:
        yield RankOutput(ranks, {"stdout": write, "stderr": write}), lines
    finally:
        os.close(write)
        lines._thread.join()


def run_of(command: str | list[str], folder: Path, ranks: int = 2, *, per_node: bool = False) -> LocalRun:
    program = Program("local", argv(command), per_node=per_node)
    return LocalRun(program, ranks, folder, dict(os.environ) | {"CUDA_VISIBLE_DEVICES": ""})


def test_ranks_find_their_places_and_their_lines_begin_with_them(tmp_path: Path) -> None:
    with printed(2) as (output, lines):
        assert run_locally(run_of(PLACE, tmp_path), output) == 0
    place = "[rank {0}] {0}/2 {0}/2 0 local True gpus= 127.0.0.1"
    assert sorted(lines.found) == [place.format(0), place.format(1)]


def test_one_process_per_node_knows_how_many_ranks_it_starts(tmp_path: Path) -> None:
    command = 'echo "$PET_NNODES $PET_NPROC_PER_NODE $PET_NODE_RANK rank=$RANK"'
    with printed(3) as (output, lines):
        assert run_locally(run_of(command, tmp_path, 3, per_node=True), output) == 0
    assert lines.found == ["[rank 0] 1 3 0 rank="]


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("exit 7", 7, "exited with status 7"),
        ("kill -9 $$", 137, "was ended by SIGKILL"),
        ("kill -40 $$", 168, "was ended by signal 40"),
    ],
)
def test_the_status_is_that_of_the_rank_that_fails_and_the_others_end(
    end: str, status: int, said: str, tmp_path: Path
) -> None:
    with printed(2) as (output, lines):
        assert run_locally(run_of(f'[ "$RANK" = 1 ] && {end}; exec sleep 1000', tmp_path), output) == status
    assert lines.found == [f"[rank 1] shardyard: this rank {said}, and the others are asked to end"]


def test_an_interrupt_ends_all_ranks_and_what_has_left_them(tmp_path: Path) -> None:
    class Interrupting(Lines):
        def on_line(self, line: str) -> None:
            if sum("ready" in one for one in self.found) == 2 and "ready" in line:
                os.kill(os.getpid(), signal.SIGINT)

    # A job in a shell's background has SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with printed(2, Interrupting) as (output, lines):
            assert run_locally(run_of(WAITS, tmp_path), output) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert sum("saved" in line for line in lines.found) == 2
    left = [int(line.split()[-1]) for line in lines.found if "ready" in line]
    assert len(left) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in left)


def test_what_a_shell_has_started_may_save_when_the_shell_has_ended(tmp_path: Path) -> None:
    class Terminating(Lines):
        def on_line(self, line: str) -> None:
            if "ready" in line:
                os.kill(os.getpid(), signal.SIGTERM)

    saving = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    with printed(1, Terminating) as (output, lines):
        run = replace(run_of(f'sh -c "{saving}"; true', tmp_path, ranks=1), piped=True)
        assert run_locally(run, output) == 128 + signal.SIGTERM
    assert "saved" in lines.found


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As SIGHUP is after `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with printed(2) as (output, _):
            assert run_locally(run_of("kill -HUP $PPID", tmp_path), output) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_logged_numbers_are_printed_and_checkpoints_stay_here(tmp_path: Path) -> None:
    read, write = os.pipe()
    stdout = os.dup(1)
    os.dup2(write, 1)  # a single rank's output is this process's
    try:
        output = RankOutput(1, {"stdout": write, "stderr": 2})
        assert run_locally(run_of([sys.executable, "-c", LOGS, str(tmp_path / "kept")], tmp_path, 1), output) == 0
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        found = pipe.read().splitlines()
    assert sorted(found) == ["resumes 3 stored False", "step 3: accuracy 0.5, lr 0.001"]
    assert any((tmp_path / "kept").iterdir())


def test_a_killed_rank_leaves_no_copy_of_the_checkpoint_that_it_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = f"{LOGS}\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    with printed(1) as (output, _):
        run = replace(run_of([sys.executable, "-c", script, str(tmp_path / "kept")], tmp_path, 1), piped=True)
        assert run_locally(run, output) == 128 + signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "weights"]


def test_each_rank_prints_the_scalars_of_its_own_event_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_follower, "LOOK_S", 0.1)
    event = Event(step=3, summary=Summary(value=[Summary.Value(tag="loss", simple_value=0.5)])).SerializeToString()
    parts = (size := struct.pack("<Q", len(event)), masked(size), event, masked(event))
    (tmp_path / "event").write_bytes(b"".join(parts))
    (tmp_path / "runs").mkdir()
    write = f"cp event runs/events.out.tfevents.$(date +%s).{socket.gethostname()}.$$.$RANK"
    run = run_of(f"{write}; until [ -e seen0 ] && [ -e seen1 ]; do sleep 0.05; done; sleep 0.5", tmp_path)

    class Seen(Lines):
        def on_line(self, line: str) -> None:
            (tmp_path / f"seen{line[6]}").touch()

    with printed(2, Seen) as (output, lines):
        assert run_locally(replace(run, program=replace(run.program, tensorboard="runs")), output) == 0
    assert sorted(lines.found) == [f"[rank {rank}] step 3: loss 0.5" for rank in range(2)]


def masked(data: bytes) -> bytes:
    """The checksum of a part of a record."""
    return struct.pack("<I", masked_crc32c(data))


def test_a_command_that_is_missing_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with printed(2) as (output, _), pytest.raises(FileNotFoundError):
        run_locally(run_of(["no-such-program"], tmp_path), output)
