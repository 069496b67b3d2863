"""`shardyard.checkpoint` and `shardyard.resume` in a program's process, which has a real trainer process's service behind its socket."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from shardyard.workers.program.agents import listening
from shardyard.workers.program.checkpoint_service import answering
from shardyard.workers.program.program import Program
from shardyard.workers.program.rank_meeting import RankMeeting
from shardyard.workers.program.report_socket import SOCKET


@pytest.fixture
def name(tmp_path: Path) -> Iterator[str]:
    """The socket of a rank that has a job."""
    program = Program("job", ("true",), checkpoints=str(tmp_path / "storage"), cache=str(tmp_path / "cache"))
    store = TCPStore("127.0.0.1", 0, None, is_master=True)
    with (
        answering(program, RankMeeting(store, 0, 1, lambda: False), lambda *_: None) as service,
        listening(lambda *_: None, service.answer) as agents,
    ):
        yield agents.name


def ran(script: str, folder: Path, name: str | None, **env: str) -> "subprocess.CompletedProcess[str]":
    own = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(
        [sys.executable, "-c", f"import shardyard\n{script}"],
        cwd=folder,
        env=own | env | ({SOCKET: name} if name else {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


SAVE = """
open("plain.txt", "w").write("plain")
shardyard.checkpoint("plain.txt", 13)
found = shardyard.resume()
print(found.step, (found.path / "plain.txt").read_text(), found.rank, found.ranks)
try: found.load()
except RuntimeError as error: print(error)
"""
STATE = """
import argparse, torch
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(layer.parameters())
layer(torch.ones(2)).sum().backward(); optimizer.step()
state = {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "epoch": 3}
for other in ({"x": argparse.Namespace()}, {"x": lambda: 0}):
    try: shardyard.checkpoint(other, step=14)
    except RuntimeError as error: print("without running code" in str(error))
shardyard.checkpoint(state, step=12)
found = shardyard.resume()
new = found.load()
print(found.step, new["epoch"], torch.equal(new["model"]["weight"], layer.weight), torch.equal(new["rng"], state["rng"]))
torch.optim.AdamW(layer.parameters()).load_state_dict(new["optimizer"])
"""


@pytest.mark.parametrize("in_job", [True, False])
def test_a_script_is_the_same_in_a_job_and_on_a_laptop(in_job: bool, name: str, tmp_path: Path) -> None:
    done = ran(SAVE, tmp_path, name if in_job else None)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert (first, "step 13 was saved as files" in second) == ("13 plain 0 (0,)", True)
    assert (tmp_path / ("storage" if in_job else "checkpoints") / "step-00000013" / "manifest.json").exists()


@pytest.mark.parametrize("in_job", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_state_is_loaded_without_running_code(in_job: bool, name: str, tmp_path: Path) -> None:
    done = ran(STATE, tmp_path, name if in_job else None)
    assert done.stdout.splitlines() == ["True", "True", "12 3 True True"], done.stderr
    assert not list((tmp_path / "storage").glob("*14")), "a state that was refused was saved"
    assert not [file for file in (tmp_path / "cache").iterdir() if file.is_file()] if in_job else True


def test_a_state_that_finds_no_room_says_so(name: str, tmp_path: Path) -> None:
    """Torch raises an error of its own then."""
    script = """
import resource, torch
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
shardyard.checkpoint({"x": torch.zeros(1 << 16)}, step=1)
"""
    done = ran(script, tmp_path, name)
    assert "the state could not be written: [Errno 27] File too large; make room for it." in done.stderr, done.stderr


def test_what_a_program_handles_while_it_saves_is_not_why_it_cannot(name: str, tmp_path: Path) -> None:
    script = """
class Own: pass
try:
    raise ConnectionError("a rank is gone")
except ConnectionError:
    shardyard.checkpoint({"x": Own()}, step=1)
"""
    done = ran(script, tmp_path, name)
    assert "the state cannot be read again without running code" in done.stderr, done.stderr


def test_ranks_that_torchrun_starts_again_have_another_answer(name: str, tmp_path: Path) -> None:
    """Those that another loop of the command starts have the first one, and those of several torchruns, which count apart."""
    several = {"TORCHELASTIC_RESTART_COUNT": "1", "GROUP_WORLD_SIZE": "2"}
    script = """
found = shardyard.resume()
print(found and found.step)
open("file", "w").write("x")
shardyard.checkpoint("file", 7 if found is None else found.step + 1)
"""
    one, counts = {"GROUP_WORLD_SIZE": "1"}, ("1", "none")
    starts = ({}, one, *({"TORCHELASTIC_RESTART_COUNT": count, **one} for count in counts), several)
    done = [ran(script, tmp_path, name, **env) for env in starts]
    assert [each.stdout.strip() for each in done] == ["None", "None", "7", "None", "None"], done


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("shardyard.checkpoint('nothing', 1)", "does not exist"),
        ("shardyard.checkpoint('.', 1.5)", "TypeError"),
        ("shardyard.checkpoint('.', -1)", "a step is between"),
        ("shardyard.checkpoint('.', 1, ranks='some')", "name one or all"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_it_is(call: str, said: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = ran(call, tmp_path, name)
    assert done.returncode != 0 and said in done.stderr, done.stderr
    assert not (tmp_path / "storage").exists()


def test_a_rank_whose_own_process_is_gone_does_not_hang(tmp_path: Path) -> None:
    done = ran("shardyard.resume()", tmp_path, "shardyard-nothing")
    assert "CheckpointFailed: the rank's own process does not answer" in done.stderr


def test_a_program_that_imports_it_needs_the_standard_library_only(tmp_path: Path) -> None:
    script = "import sys; shardyard.checkpoint; shardyard.resume; print(*[m for m in ('torch', 'pydantic', 'ray') if m in sys.modules])"
    done: Any = ran(script, tmp_path, None)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
