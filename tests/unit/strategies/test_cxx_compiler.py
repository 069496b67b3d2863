"""A compiler that is killed during its work leaves nothing under the name that others look for."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from harness.control_plane import until
from harness.patience import PATIENCE_S

from shardyard.strategies import compile, cxx_compiler

#: Writes the first half of what it was asked for, waits for `go` in its folder, and writes the rest.
HALF = """#!/bin/sh
[ "$1" = --version ] && echo half && exit 0
for one do [ "$before" = -o ] && out=$one; before=$one; done
printf half > "$out"
while [ ! -e "{folder}/go" ]; do sleep 0.02; done
[ -e "{folder}/fail" ] && exit 3
printf whole > "$out"
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    slow = tmp_path / "it's g++"
    slow.write_text(HALF.format(folder=tmp_path))
    slow.chmod(0o700)
    return cxx_compiler.whole(str(slow), tmp_path / "cache")


def drafts(folder: Path) -> list[Path]:
    return list(folder.glob("*.draft.*"))


def start(script: Path, out: Path) -> subprocess.Popen[bytes]:
    running = subprocess.Popen([script, "-O2", "a b.cpp", "-o", out, "-shared"], start_new_session=True)
    until(lambda: any(draft.read_text() == "half" for draft in drafts(out.parent)), PATIENCE_S, "half a library")
    return running


def test_a_result_appears_when_it_is_whole(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "lib x.so"
    running = start(script, out)
    assert not out.exists()
    (tmp_path / "go").touch()
    assert running.wait(PATIENCE_S) == 0
    assert out.read_text() == "whole"
    assert drafts(tmp_path) == []


def test_one_that_is_killed_leaves_nothing_under_the_name(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "lib.so"
    running = start(script, out)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(PATIENCE_S)
    assert not out.exists()


def test_one_that_fails_says_so_and_leaves_nothing(script: Path, tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    running = start(script, tmp_path / "lib.so")
    (tmp_path / "go").touch()
    assert running.wait(PATIENCE_S) == 3
    assert not (tmp_path / "lib.so").exists()
    assert drafts(tmp_path) == []


def test_what_has_no_output_file_is_handed_on(script: Path) -> None:
    assert subprocess.run([script, "--version"], capture_output=True, check=True).stdout == b"half\n"


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own
def test_torch_takes_the_script_as_its_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CXX", shutil.which("true") or "")
    (option,) = compile._whole_compiler().items()
    assert option == ("cpp.cxx", (None, str(cxx_compiler.own_folder() / "whole-true")))
    torch.compile(torch.sin, options=dict([option]))  # raises for a name that is no option


def test_a_folder_that_another_user_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"shardyard-cxx-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="belongs to another user"):
        cxx_compiler.own_folder()
