"""Checkpoints outside a job: ranks of a launcher on one machine, deaths in between, and old remains."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.checkpoint.program_files import sources, write_part
from shardyard.workers.checkpoint.retention import complete, folder, step_of
from shardyard.workers.program import local_checkpoints
from shardyard.workers.program.local_checkpoints import answer
from shardyard.workers.program.report_socket import LOCAL
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.storage.open_folder import folder_at

#: What a rank that its launcher started does: part of a step, in a process.
RANK = "import os, shardyard, pathlib; n = os.environ['RANK']; pathlib.Path(n).write_text(n); shardyard.checkpoint(n, 5, ranks='all')"


#: A launcher that starts each rank by a shell.
SHELL = ("sh", "-c", '"$@"; true', "sh")
#: The variables that a launcher sets, and that of `shardyard run`.
SET = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", LOCAL)


@contextmanager
def started(number: int, root: Path, shell: tuple[str, ...] = (), **more: str) -> Iterator[Callable[[], None]]:
    """A rank that runs, with these variables of its launcher; the function that lets it save and end."""
    env = {key: value for key, value in os.environ.items() if key not in SET}
    env |= {"RANK": str(number), "WORLD_SIZE": "2"} | more
    command = [*shell, sys.executable, "-c", f"import sys; print(flush=True); sys.stdin.read(); {RANK}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=root, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline()

        def save() -> None:
            process.communicate("saves", PATIENCE_S)
            assert process.returncode == 0

        yield save


def test_ranks_of_one_launcher_complete_a_step_together(tmp_path: Path) -> None:
    root = folder_at(str(tmp_path / "checkpoints"))
    earlier, again = {"TORCHELASTIC_RESTART_COUNT": "0"}, {"TORCHELASTIC_RESTART_COUNT": "1"}
    with (
        started(0, tmp_path, **earlier) as before,
        started(0, tmp_path, **again) as zero,
        started(1, tmp_path, **again) as one,
    ):
        before()
        one()  # the part of rank 0 is of an earlier start
        assert not complete(root)
        zero()
    assert [step_of(path) for path in complete(root)] == [5]
    found = answer(tmp_path / "checkpoints", {"resume": {"rank": 1}}, [])
    assert (Path(found["path"], "1").read_text(), found["ranks"]) == ("1", [0, 1])
    assert not list((tmp_path / "checkpoints").glob(".parts-*"))


def test_ranks_that_a_shell_starts_each_complete_a_step_together(tmp_path: Path) -> None:
    """Their parents differ, and their run has a name."""
    root = folder_at(str(tmp_path / "checkpoints"))
    for number, run in ((0, "earlier"), (1, "run"), (0, "run")):
        assert not complete(root)
        with started(number, tmp_path, SHELL, SHARDYARD_LOCAL=run) as save:
            save()
    assert [step_of(path) for path in complete(root)] == [5]


def test_ranks_that_find_each_other_by_a_port_complete_a_step_together(tmp_path: Path) -> None:
    """Their parents differ, and a start before, of which a rank has saved, had the same port."""
    root = folder_at(str(tmp_path / "checkpoints"))
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}
    with started(1, tmp_path, SHELL, **port) as first:
        first()
    with (
        started(0, tmp_path, SHELL, **port) as zero,
        started(1, tmp_path, SHELL, **port) as one,
        started(1, tmp_path, SHELL, **port | {"MASTER_PORT": "29501"}) as other,
    ):
        zero()
        assert not complete(root)
        one()
        assert [step_of(path) for path in complete(root)] == [5]
        other()
    assert len([*(tmp_path / "checkpoints").glob(".parts-*")]) == 1, "that of the other start"


def test_a_launcher_with_the_id_of_an_earlier_one_is_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as process 1 of a container."""
    (tmp_path / "file").write_text("content")
    where, request = (
        tmp_path / "checkpoints",
        {"step": 1, "every": True, "kind": "files", "path": str(tmp_path / "file")},
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in SET:
        monkeypatch.delenv(name, raising=False)

    def save(number: int) -> None:
        monkeypatch.setenv("RANK", str(number))
        assert "error" not in answer(where, {"save": request}, [])

    save(0)
    monkeypatch.setattr(local_checkpoints, "started_at", lambda _: 7)
    save(1)
    assert not complete(folder_at(str(where)))
    save(0)
    assert complete(folder_at(str(where)))


def test_a_parent_that_starts_its_ranks_again_completes_no_step_of_the_start_before(tmp_path: Path) -> None:
    """Such as a script that starts each by itself until they succeed: they have the same parent, and no launcher counts their starts."""
    root = folder_at(str(tmp_path / "checkpoints"))
    with started(1, tmp_path) as first:
        first()
    with started(0, tmp_path) as zero, started(1, tmp_path) as one:
        zero()
        assert not complete(root)
        one()
    assert [step_of(path) for path in complete(root)] == [5]


def test_ranks_of_several_nodes_do_not_save_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("content")
    where, request = (
        tmp_path / "checkpoints",
        {"step": 1, "every": True, "kind": "files", "path": str(tmp_path / "file")},
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert "several nodes cannot save together" in answer(where, {"save": request}, [])["error"]
    assert not where.exists()
    assert "error" not in answer(where, {"save": request | {"every": False}}, [])


def test_a_torn_and_a_damaged_save_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    where = tmp_path / "checkpoints"
    for step in (1, 2):
        request = {"step": step, "every": False, "kind": "files", "path": str(tmp_path / "file")}
        assert "error" not in answer(where, {"save": request}, [])
    write_part(folder(folder_at(str(where)), 3), 0, sources(tmp_path / "file"))  # a death before the manifest
    (stored,) = (path for path in (where / "step-00000002").iterdir() if path.name.startswith("rank"))
    stored.write_text("damaged")
    assert answer(where, {"resume": {"rank": None}}, [])["step"] == 1


def test_what_a_killed_process_resumed_from_is_copied_once_and_removed_by_the_next(tmp_path: Path) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    (tmp_path / "file").write_text("content")
    where = tmp_path / "checkpoints"
    request = {"step": 1, "every": False, "kind": "files", "path": str(tmp_path / "file")}
    assert "error" not in answer(where, {"save": request}, [])
    left = []
    for end in ("os.kill(os.getpid(), 15)", ""):
        script = f"import os, shardyard\nfor _ in range(2):\n    print(shardyard.resume().path, flush=True)\n{end}"
        env = os.environ | {"TMPDIR": str(temporary)}
        process = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, check=False
        )
        assert len(process.stdout.split()) == 2 and len({*process.stdout.split()}) == 1
        left.append(len([*temporary.glob("*/*")]))
    assert left == [1, 0] and not [*temporary.iterdir()]


#: A program whose handlers save, with signals that arrive while it saves.
SIGNALLED = """
import os, signal, sys, threading, shardyard
from shardyard.workers.program import local_checkpoints
usual, step = local_checkpoints.publish, iter((2, 3))
def publish(*given):
    local_checkpoints.publish = usual
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # another thread takes it
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
        os.kill(os.getpid(), number)
    return usual(*given)
def save(*_):
    shardyard.checkpoint(sys.argv[0], next(step))
threading.Thread(target=threading.Event().wait, daemon=True).start()
local_checkpoints.publish = publish
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, save)
shardyard.checkpoint(sys.argv[0], 1)
assert signal.getsignal(signal.SIGTERM) is save and next(step, None) is None
"""


def test_a_handler_that_saves_waits_for_the_save_that_it_interrupts(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SIGNALLED)
    command = [sys.executable, "script.py"]
    assert subprocess.run(command, cwd=tmp_path, timeout=PATIENCE_S, check=False).returncode == 0
    assert [step_of(path) for path in complete(folder_at(str(tmp_path / "checkpoints")))] == [3, 2]


def test_errors_are_answers(tmp_path: Path) -> None:
    request = {"step": -1, "every": False, "kind": "files", "path": str(tmp_path)}
    assert "a step is between" in answer(tmp_path, {"save": request}, [])["error"]
    assert answer(tmp_path / "nothing", {"resume": {"rank": None}}, []) == {"step": None}


def test_a_checkpoint_that_another_process_removes_meanwhile_is_not_the_end_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    usual, where = LocalFolder.read_into, tmp_path / "checkpoints"

    def save(step: int) -> None:
        asked = {"step": step, "every": False, "kind": "files", "path": str(tmp_path / "file")}
        assert "error" not in answer(where, {"save": asked}, [])

    def removed_before(self: LocalFolder, *what: Any) -> None:
        if self.name == "step-00000001":
            save(2)
            self.remove_all()
        usual(self, *what)

    save(1)
    monkeypatch.setattr(LocalFolder, "read_into", removed_before)
    assert answer(where, {"resume": {"rank": None}}, [])["step"] == 2
