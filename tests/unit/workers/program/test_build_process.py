"""The output of a command that builds an environment, to its end, whatever holds its pipe."""

import os
import time
from pathlib import Path

import pytest

from shardyard.workers.process_stat import state_of
from shardyard.workers.program import build_process as module
from shardyard.workers.program.build_process import BuildProcess, Ended

#: Prints once it may go on, and leaves a process behind that has its output.
SCRIPT = """
cat hold &
read line < go
echo the last error
exit 3
"""


def test_what_a_command_writes_before_its_end_is_read_however_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes, and ends, between two looks of a node that stands still."""
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    for name in ("hold", "go"):
        os.mkfifo(tmp_path / name)

    held: list[int] = []

    def looked(pid: int) -> str | None:
        if state_of(pid) != "Z":
            held.append(os.open(tmp_path / "hold", os.O_WRONLY))  # waits until `cat` has it, too
            (tmp_path / "go").write_text("go\n")
            while state_of(pid) != "Z":
                time.sleep(0.01)
        return state_of(pid)

    monkeypatch.setattr(module, "state_of", looked)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        ended = BuildProcess(os.environ, tmp_path, lock, 600.0, lambda: False).run("sh", "-c", SCRIPT)
    finally:
        os.close(lock)
        for one in held:  # which ends what was left behind
            os.close(one)
    assert ended == Ended(3, "the last error\n")
