"""The Jupyter server of a session: what is started with which token, where it is found, and what is said without Jupyter."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.program import jupyter_server

#: In the place of Jupyter: writes its runtime file as jupyter_server does, and what it was started with.
JUPYTER = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
(folder / "jpserver-1.json").write_text(json.dumps({"port": 4321, "token": os.environ["JUPYTER_TOKEN"], "pid": 1}))
pathlib.Path("started").write_text(json.dumps(sys.argv[1:]))
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A job's variables, with a folder for temporary files of the test's own, in which modules are found, too."""
    given = {"SHARDYARD_JOB": "job-x", "SHARDYARD_ATTEMPT": "2", "TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return {**os.environ, **given}


def ran(env: dict[str, str], folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardyard.workers.program.jupyter_server", what]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize(("module", "command"), [("jupyterlab", "lab"), ("notebook", "notebook")])
def test_what_the_environment_has_is_served_with_a_random_token(
    env: dict[str, str], tmp_path: Path, module: str, command: str
) -> None:
    (tmp_path / "jupyter.py").write_text(JUPYTER)
    (tmp_path / f"{module}.py").write_text("")
    tokens = set()
    for _ in range(2):
        done = ran(env, tmp_path, "serve")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        started = json.loads((tmp_path / "started").read_text())
        assert started == [command, "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
        shown = ran(env, tmp_path, "show")
        assert shown.returncode == 0
        found = json.loads(shown.stdout)
        assert found.keys() == {"port", "token"} and found["port"] == 4321 and len(found["token"]) >= 40
        tokens.add(found["token"])
    assert len(tokens) == 2
    assert jupyter_server.runtime_folder().stat().st_mode & 0o777 == 0o700


def test_folders_of_sessions_that_have_ended_are_removed_after_a_day(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {}
    for name, pid, age_s in (("ended", 2**22 + 1, 2e5), ("runs", os.getpid(), 2e5), ("new", 2**22 + 1, 10.0)):
        monkeypatch.setenv("SHARDYARD_JOB", name)
        folders[name] = jupyter_server.runtime_folder()
        folders[name].mkdir(mode=0o700)
        (folders[name] / "jpserver-1.json").write_text(json.dumps({"pid": pid, "token": "x"}))
        os.utime(folders[name], (time.time() - age_s,) * 2)
    jupyter_server._remove_old()
    assert [name for name, folder in folders.items() if folder.exists()] == ["runs", "new"]


def test_without_jupyter_it_says_what_is_missing(env: dict[str, str], tmp_path: Path) -> None:
    done = ran({**env, "PYTHONPATH": ""}, tmp_path, "serve")
    assert done.returncode == 1 and "add jupyterlab to the requirements" in done.stderr


def test_a_folder_that_others_may_read_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "jupyterlab.py").write_text("")
    folder = jupyter_server.runtime_folder()
    folder.mkdir()
    folder.chmod(0o755)
    done = ran(env, tmp_path, "serve")
    assert done.returncode == 1 and f"{folder} is another user's, or others may read it." in done.stderr


def test_a_server_that_does_not_begin_is_reported(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jupyter_server, "BEGIN_S", 0.1)
    assert jupyter_server.show() == 1
    assert capsys.readouterr().out == "The Jupyter server has not begun within 0.1 s.\n"
