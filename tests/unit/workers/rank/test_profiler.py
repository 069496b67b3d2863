"""Profiles of real processes by py-spy: what is in them, once per id, and what is refused."""

import asyncio
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.locked_folder import of_this_host, open_locked
from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.rank import process_tree, profiler
from shardyard.workers.rank.profiler import Outcome, Profiler, Target
from shardyard.workers.rank.recordings import NotRecorded
from shardyard.workers.rank.secret_mask import SecretMask

NO_SECRETS = SecretMask()
#: As a shell has put it into a command line. JSON escapes some of it.
SECRET = 'a-"secret"\\of the job'

#: A shell, as of a command that is text, with a Python process that computes below it.
PROGRAM = """
def busy_in_here():
    print("ready", flush=True)
    number = 0
    while True:
        number = (number + 1) % 1000
busy_in_here()
"""


#: Of a shell that starts Python, and of one that does not.
STARTS_PYTHON = f'"{sys.executable}" -c "$1" "$2" & wait'
NO_PYTHON = "echo ready; exec sleep 1000"


@contextmanager
def program(script: str = STARTS_PYTHON) -> Iterator[int]:
    """A shell, by its process's id."""
    shell = subprocess.Popen(
        ["sh", "-c", script, "sh", PROGRAM, f"--key={SECRET}"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert shell.stdout is not None
    try:
        assert shell.stdout.readline() == b"ready\n"
        yield shell.pid
    finally:
        subprocess.run(["kill", "-9", "--", f"-{shell.pid}"], check=True)
        shell.wait()
        shell.stdout.close()


async def silent() -> dict[str, Any]:
    return {}


async def unrecorded(order_: Profile, path: Path) -> int:
    raise AssertionError(f"{order_} is not of the trainer, nor {path}")


def order(kind: Any, folder: Path, name: str = "p1", most_bytes: int = 1 << 20) -> Profile:
    return Profile(name, kind, 3, 1, str(folder), most_bytes)


def stored(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


async def taken(profiler_: Profiler, wanted: Profile, target: Target) -> Outcome:
    async with asyncio.timeout(PATIENCE_S):
        outcome = await profiler_.profile(wanted, target)
    assert outcome is not None
    return outcome


async def test_stacks_and_samples_of_a_program_are_stored_once(tmp_path: Path) -> None:
    mine = Profiler()
    with program() as shell:
        target = Target(shell, True, silent, SecretMask([SECRET]), unrecorded)
        first, again = await asyncio.gather(*(taken(mine, order("stacks", tmp_path), target) for _ in range(2)))
        sampled = await taken(mine, order("cpu", tmp_path, "p2"), target)
    assert first is again and first.file is not None and sampled.file is not None
    assert (first.file.name, first.message) == ("profiles/rank-3-stacks-p1.txt", "the stacks of 1 process")
    assert "busy_in_here" in (tmp_path / first.file.sha256).read_text()
    assert sampled.file.name == "profiles/rank-3-cpu-p2.speedscope.json"
    found = json.loads((tmp_path / sampled.file.sha256).read_text())
    assert "busy_in_here" in {frame["name"] for frame in found["shared"]["frames"]}
    assert stored(tmp_path) == {first.file.sha256, sampled.file.sha256}
    for file in (first.file, sampled.file):
        text = (tmp_path / file.sha256).read_text()
        assert "--key=***" in text and "secret" not in text
    assert Outcome.from_json(json.loads(json.dumps(sampled.to_json()))) == sampled


def test_stacks_for_an_incident_are_the_same_where_ranks_are_at_the_same_lines() -> None:
    with program() as one, program() as other:
        targets = [Target(pid, True, silent, SecretMask([SECRET]), unrecorded) for pid in (one, other)]
        texts = [profiler.stacks_from_outside(target, PATIENCE_S) for target in targets]
    # Either may be at another line of the loop, and wait for the interpreter's lock.
    first, second = (re.sub(r"<string>:\d+|active\S*", "", text) for text in texts)
    assert first == second and "busy_in_here" in first and "--key=***" in first
    assert "Process: " in first and "Thread (" in first
    assert profiler.stacks_from_outside(targets[0], 1.0) == "", "it has ended"


async def test_a_process_that_cannot_be_read_leaves_the_stacks_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has just begun or ended, such as a worker of a data loader."""
    with program() as shell, program(NO_PYTHON) as other:
        target = Target(shell, True, silent, NO_SECRETS, unrecorded)
        monkeypatch.setattr(profiler, "python_processes", lambda _: [other, *process_tree.pids(shell)[1:]])
        found = await taken(Profiler(), order("stacks", tmp_path), target)
    assert found.file is not None and found.message == "the stacks of 1 process"
    text = (tmp_path / found.file.sha256).read_text()
    assert f"Process {other}: py-spy failed" in text and "busy_in_here" in text


async def test_processes_that_are_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "MOST_PROCESSES", 1)
    with program() as shell:
        python = process_tree.pids(shell)[1]
        monkeypatch.setattr(profiler, "python_processes", lambda _: [python] * 3)
        found = await taken(Profiler(), order("stacks", tmp_path), Target(shell, True, silent, NO_SECRETS, unrecorded))
    assert found.message == "the stacks of 1 process, and not of 2 more"


async def test_a_rank_without_python_and_a_file_that_is_too_large_are_refused(tmp_path: Path) -> None:
    mine = Profiler()
    with program(NO_PYTHON) as other, program() as shell:
        nothing = await taken(mine, order("stacks", tmp_path), Target(other, True, silent, NO_SECRETS, unrecorded))
        large = await taken(
            mine, order("stacks", tmp_path, "p2", 10), Target(shell, True, silent, NO_SECRETS, unrecorded)
        )
        no_python = await taken(
            mine, order("cpu", tmp_path, "p3"), Target(other, False, silent, NO_SECRETS, unrecorded)
        )
    assert nothing.file is None and "no Python process" in nothing.message
    assert large.file is None and "may have 10" in large.message
    assert no_python.file is None and "py-spy failed" in no_python.message
    assert not stored(tmp_path)


async def test_a_py_spy_that_cannot_be_started_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "py-spy").write_text("not a program")
    monkeypatch.setattr(profiler.sys, "executable", str(tmp_path / "python"))
    found = await taken(Profiler(), order("cpu", tmp_path), Target(1, False, silent, NO_SECRETS, unrecorded))
    assert found.file is None and found.message == f"{tmp_path}/py-spy cannot be started: Permission denied"


async def test_where_the_kernel_forbids_it_a_trainer_reports_its_own_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A py-spy that says what the real one says without the right to read a process."""
    denied = tmp_path / "py-spy"
    denied.write_text(
        "#!/bin/sh\necho 'Error: Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n"
    )
    denied.chmod(0o755)
    monkeypatch.setattr(profiler.sys, "executable", str(tmp_path / "python"))

    async def reports() -> dict[str, Any]:
        return {"stacks": [{"thread": "MainThread", "frames": ["a.py:1 in outer", "a.py:9 in inner"], "call": ""}]}

    mine, folder = Profiler(), tmp_path / "stored"
    own = await taken(mine, order("stacks", folder), Target(1, False, reports, NO_SECRETS, unrecorded))
    refused = await taken(mine, order("cpu", folder, "p2"), Target(1, False, reports, NO_SECRETS, unrecorded))
    assert own.file is not None and own.message == "the stacks that the process reported itself"
    assert (folder / own.file.sha256).read_text() == "Thread 'MainThread'\n    a.py:9 in inner\n    a.py:1 in outer\n"
    assert refused.file is None and "kernel.yama.ptrace_scope" in refused.message


async def test_a_recording_is_the_trainers_own_compressed_and_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an actor that was killed has left of another one is removed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _, lock = open_locked(of_this_host("shardyard-profile-"), tmp_path)
    os.close(lock)

    async def writes(order_: Profile, path: Path) -> int:
        assert stored(tmp_path) == {path.parent.name}
        trace = json.dumps({"traceEvents": [{"name": order_.id, "args": SECRET}]})
        await asyncio.to_thread(path.write_text, trace)
        return 2

    target = Target(1, False, silent, SecretMask([SECRET]), writes)
    found = await taken(Profiler(), order("operators", tmp_path), target)
    assert found.file is not None and found.message == "operators of 2 steps"
    assert stored(tmp_path) == {found.file.sha256}
    assert found.file.name == "profiles/rank-3-operators-p1.trace.json.gz"
    content = gzip.decompress((tmp_path / found.file.sha256).read_bytes())
    assert json.loads(content)["traceEvents"] == [{"name": "p1", "args": "***"}]


async def test_a_recording_that_there_is_not_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_order: Profile, _path: Path) -> int:
        raise NotRecorded("its process ended")

    async def raises(_order: Profile, _path: Path) -> int:
        raise NotRecorded(f"the program's own error: {SECRET}")

    async def large(_order: Profile, path: Path) -> int:
        await asyncio.to_thread(path.write_bytes, bytes(11))
        return 1

    monkeypatch.setattr(profiler, "MOST_RECORDED", 10)
    for target, why in (
        (Target(1, False, silent, NO_SECRETS, fails), "its process ended"),
        (Target(1, False, silent, NO_SECRETS, large), "has 11 bytes"),
        (Target(1, False, silent, SecretMask([SECRET]), raises), "the program's own error: ***"),
    ):
        found = await taken(Profiler(), order("operators", tmp_path), target)
        assert found.file is None and why in found.message
    assert not stored(tmp_path)
