"""A program's environment on a node, built by the real uv from small local packages."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from harness import packages
from harness.control_plane import until
from harness.patience import PATIENCE_S

from shardyard.workers.process_stat import state_of
from shardyard.workers.program import environment_folder
from shardyard.workers.program import python_environment as environments
from shardyard.workers.program.build_process import NOT_BUILT, NOT_PREPARED, UNREACHABLE, EnvironmentNotBuilt
from shardyard.workers.program.program import PythonEnvironment
from shardyard.workers.program.python_environment import python_environment
from shardyard.workers.program.shared_folder import EndRequested


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the only packages that uv finds. However full the disk is, no environment is removed for it."""
    monkeypatch.setattr(environment_folder, "_SPARE_BYTES", 0)
    folder = tmp_path / "index"
    packages.wheel(folder, "alpha", code="VALUE = 7")
    for name, value in packages.variables(folder).items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def never() -> bool:
    return False


def wants(*requirements: str, **more: Any) -> PythonEnvironment:
    return PythonEnvironment(requirements=requirements, **more)


def built(wanted: PythonEnvironment, cache: Path, code: Path = Path("/")) -> Path:
    with python_environment(wanted, code, cache, never) as place:
        return place


def printed(place: Path, script: str) -> str:
    """What this script prints in the environment; its exception if there is one."""
    done = subprocess.run(
        [place / "bin" / "python", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@contextlib.contextmanager
def ranks(wanted: PythonEnvironment, cache: Path, logs: list[Path]) -> Iterator[list[Any]]:
    """Processes that use this environment until the block ends; a log for each."""
    context = multiprocessing.get_context("fork")
    go_on = context.Event()
    started = [context.Process(target=_rank, args=(wanted, cache, log, go_on)) for log in logs]
    for one in started:
        one.start()
    try:
        yield started
    finally:
        go_on.set()
        for one in started:
            one.join(PATIENCE_S)


def _rank(wanted: PythonEnvironment, cache: Path, log: Path, go_on: Any) -> None:
    sys.stderr = log.open("w")
    with python_environment(wanted, Path("/"), cache, never) as place:
        sys.stderr.write(f"uses {(place / 'bin').stat().st_ino}\n")
        sys.stderr.flush()
        go_on.wait(PATIENCE_S)


def has(log: Path, text: str) -> Callable[[], bool]:
    return lambda: log.exists() and text in log.read_text()


def begun(started: Path) -> Callable[[], bool]:
    """Whether a build has written its process's id into this file."""
    return lambda: started.exists() and bool(started.read_text())


def test_two_processes_build_one_environment(index: Path, cache: Path, tmp_path: Path) -> None:
    """The second says that it waits; both use the same, and the next one builds nothing."""
    packages.gated_source(index, "slow")
    first, second = logs = [tmp_path / "first.log", tmp_path / "second.log"]
    with ranks(wants("slow"), cache, [first]):
        until(begun(index / "slow.started"), PATIENCE_S, "the build")
        with ranks(wants("slow"), cache, [second]):
            until(has(second, "waiting for another process"), PATIENCE_S, "the second to wait")
            (index / "slow.go").touch()
            for log in logs:
                until(has(log, "uses"), PATIENCE_S, f"{log.name} to use the environment")
    assert "+ slow==1.0" in first.read_text() and second.read_text().count("\n") == 2
    assert len({log.read_text().splitlines()[-1] for log in logs}) == 1
    place = built(wants("slow"), cache)
    assert printed(place, "import slow, sys; print(sys.prefix)") == str(place)


def test_what_a_killed_build_left_is_no_environment(index: Path, cache: Path, tmp_path: Path) -> None:
    """Its place is free when uv has ended, too, and not before."""
    packages.gated_source(index, "slow")
    with ranks(wants("slow"), cache, [tmp_path / "log"]) as (builder,):
        until(begun(index / "slow.started"), PATIENCE_S, "the build")
        builder.kill()
        builder.join(PATIENCE_S)
        with pytest.raises(EndRequested), python_environment(wants("slow"), Path("/"), cache, lambda: True):
            pass
        os.killpg(os.getpgid(int((index / "slow.started").read_text())), signal.SIGKILL)
    (place,) = (path for path in (cache / "environments").iterdir() if path.is_dir())
    assert not (place / ".complete").exists()
    (index / "slow.go").touch()
    assert built(wants("slow"), cache) == place and printed(place, "import slow; print('there')") == "there"


def test_a_rank_that_is_to_stop_ends_uv_and_what_it_has_started(index: Path, cache: Path) -> None:
    packages.gated_source(index, "slow")
    started = index / "slow.started"
    with (
        pytest.raises(EndRequested),
        python_environment(wants("slow"), Path("/"), cache, begun(started)),
    ):
        pass
    backend = int(started.read_text())
    until(lambda: state_of(backend) in (None, "Z"), PATIENCE_S, "the backend to end")
    assert [path.suffix for path in (cache / "environments").iterdir()] == [".lock"]


def test_a_build_has_a_time_limit(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages.gated_source(index, "slow")
    monkeypatch.setattr(environment_folder, "BUILD_S", 0.5)
    with pytest.raises(EnvironmentNotBuilt, match=r"longer than 0\.5 s") as failed:
        built(wants("slow"), cache)
    assert failed.value.cause == NOT_PREPARED


def test_a_failure_is_one_line_that_names_the_package(index: Path, cache: Path) -> None:
    packages.wheel(index, "beta", requires=["alpha>=2"])
    packages.gated_source(index, "broken", error="no compiler here")
    (index / "broken.go").touch()
    for requirement, said in {
        "gamma": "Because gamma was not found in the package registry and you require gamma.",
        "beta": "only alpha==1.0 is available and all versions of beta depend on alpha>=2.",
        "broken": "Failed to build `broken==1.0`: RuntimeError: no compiler here",
    }.items():
        with pytest.raises(EnvironmentNotBuilt) as failed:
            built(wants(requirement), cache)
        assert said in str(failed.value) and "\n" not in str(failed.value), str(failed.value)
        assert failed.value.cause == NOT_BUILT
    assert not [path for path in (cache / "environments").iterdir() if path.is_dir()]


def test_an_index_that_does_not_answer_is_not_the_users_fault(
    index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    with pytest.raises(EnvironmentNotBuilt, match=r"127\.0\.0\.1:9/simple/gamma.*refused") as failed:
        built(wants("gamma"), cache)
    assert failed.value.cause == UNREACHABLE


def test_an_index_that_refuses_is_named_without_the_password(
    index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://me:secret@127.0.0.1:{server.server_port}")
        with pytest.raises(
            EnvironmentNotBuilt, match=r"you require gamma\.: An index URL .*401 Unauthorized"
        ) as failed:
            built(wants("gamma"), cache)
        server.shutdown()
    assert "secret" not in str(failed.value) and failed.value.cause == NOT_BUILT


def test_the_digest_changes_with_what_matters(
    index: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal contents are one environment, whatever their file is called."""
    (tmp_path / "requirements.txt").write_text("-r more.txt\n")
    (tmp_path / "other.txt").write_text("-r more.txt\n")
    (tmp_path / "more.txt").write_text("alpha\n")
    of_file = PythonEnvironment("requirements.txt")
    first = built(of_file, cache, tmp_path)
    assert built(PythonEnvironment("other.txt"), cache, tmp_path) == first
    found = {first, built(wants("alpha"), cache), built(wants("alpha", version="3.11"), cache)}
    (tmp_path / "more.txt").write_text("alpha==1.0\n")
    found.add(built(of_file, cache, tmp_path))
    monkeypatch.setenv("UV_PRERELEASE", "allow")
    found.add(built(of_file, cache, tmp_path))
    assert len(found) == 5


def test_unused_environments_go_and_those_in_use_stay(
    index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv's cache is emptied with them; it has the same files."""
    packages.wheel(index, "beta")
    old = time.time() - environment_folder.KEPT_S - 60
    unused, kept = built(wants("beta"), cache), built(wants("alpha<3"), cache)
    with python_environment(wants("alpha"), Path("/"), cache, never) as used:
        for place in (unused, used):
            os.utime(place.with_name(f"{place.name}.lock"), (old, old))
        built(wants("alpha<4"), cache)
        assert (unused.exists(), kept.exists(), used.exists()) == (False, True, True)
        assert {path.name for path in (cache / "uv").glob("archive*/*/*.py")} == {"alpha.py"}
        monkeypatch.setattr(environment_folder, "_SPARE_BYTES", 1 << 60)
        built(wants("alpha<5"), cache)
        assert (kept.exists(), used.exists()) == (False, True)


def test_without_inherit_there_is_what_was_asked_for(index: Path, cache: Path) -> None:
    place = built(wants("alpha"), cache)
    assert printed(place, "import alpha; print(alpha.VALUE)") == "7"
    assert printed(place, "import pydantic") == "ModuleNotFoundError: No module named 'pydantic'"
    assert not (place / "bin" / "torchrun").exists()


def test_inherited_packages_are_used_where_their_versions_suit(index: Path, cache: Path) -> None:
    """`pydantic` is not in the index, so that it cannot be installed; the mergedeep of this environment is too new for `needy`."""
    packages.wheel(index, "mergedeep", "0.0.1", code="OWN = True")
    packages.wheel(index, "needy", requires=["pydantic", "mergedeep<0.1", "psutil; python_version < '3'"])
    place = built(wants("needy", inherit=True), cache)
    assert printed(place, "import mergedeep, pydantic, shardyard; print(mergedeep.OWN)") == "True"
    torchrun = (place / "bin" / "torchrun").read_text().splitlines()
    assert torchrun[0] == f"#!{place}/bin/python" and not (place / "bin" / "pip").exists()
    done = subprocess.run(
        [place / "bin" / "shardyard", "--version"], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_project_and_its_lock_are_installed_without_the_code(index: Path, cache: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = ["alpha"]\n'
        '[build-system]\nrequires = ["none-such"]\nbuild-backend = "none"\n'
    )
    assert (
        printed(built(PythonEnvironment("pyproject.toml"), cache, project), "import alpha; print(alpha.VALUE)") == "7"
    )
    with pytest.raises(EnvironmentNotBuilt, match=r"uv\.lock does not exist on this node"):
        built(PythonEnvironment("uv.lock"), cache, project)
    lock = 'version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "mine"\nversion = "0"\nsource = {editable = "."}\n'
    lock += 'dependencies = [{name = "alpha"}]\n[[package]]\nname = "alpha"\nversion = "1.0"\n'
    lock += f'source = {{registry = "{index}"}}\nwheels = [{{path = "{index}/alpha-1.0-py3-none-any.whl"}}]\n'
    (project / "uv.lock").write_text(lock)
    packages.wheel(index, "alpha", "1.1", code="VALUE = 8")
    place = built(PythonEnvironment("uv.lock"), cache, project)
    assert printed(place, "import alpha; print(alpha.VALUE)") == "7"
    assert "mine" in printed(place, "import mine")


def test_what_is_above_a_project_is_not_read(index: Path, cache: Path, tmp_path: Path) -> None:
    """A workspace in the code's root would install a package from there, which jobs with an equal project would get, too."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "pyproject.toml").write_text(
        '[project]\nname = "root"\nversion = "0"\n[tool.uv]\nrequired-version = "==0.0.1"\n[tool.uv.workspace]\nmembers = ["sub"]\n'
        '[tool.uv.sources]\nalpha = {path = "libs/alpha"}\n'
    )
    (code / "sub").mkdir()
    (code / "sub" / "pyproject.toml").write_text('[project]\nname = "sub"\nversion = "0"\ndependencies = ["alpha"]\n')
    place = built(PythonEnvironment("sub/pyproject.toml"), cache, code)
    assert printed(place, "import alpha; print(alpha.VALUE)") == "7"


def test_an_address_alone_is_refused_with_inherit(cache: Path) -> None:
    with pytest.raises(EnvironmentNotBuilt, match=r"'git\+https://x.org/a.git' .* NAME @ https"):
        built(wants("git+https://x.org/a.git", inherit=True), cache)


def test_inherit_needs_the_same_python(index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_PACKAGES", "lib/python3.99/site-packages")
    with pytest.raises(EnvironmentNotBuilt, match=r"inherit needs the Python of this node, 3\..* version is 3\.11"):
        built(wants("alpha", version="3.11", inherit=True), cache)
