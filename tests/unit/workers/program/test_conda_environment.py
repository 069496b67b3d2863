"""Environments by conda, with a stand-in for the tool (`harness/conda.py`): which one runs, how often, and how failures are reported."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness import conda
from harness.control_plane import until
from harness.patience import PATIENCE_S

from shardyard.workers.program import cache_disk, environment_folder
from shardyard.workers.program.build_process import NOT_BUILT, NOT_PREPARED, UNREACHABLE, EnvironmentNotBuilt
from shardyard.workers.program.conda_environment import conda_environment, first_error
from shardyard.workers.program.environment import within
from shardyard.workers.program.shared_folder import EndRequested


class Node:
    """A node with these tools on its PATH."""

    def __init__(self, root: Path) -> None:
        self.bin, self.cache, self.file = root / "bin", root / "cache", root / "environment.yml"
        self.bin.mkdir()
        self.calls = self.bin / "calls"

    def built(self, *packages: str) -> Path:
        self.file.write_text(f"dependencies: [{', '.join(('python', *packages))}]\n")
        with conda_environment(self.file, self.cache, lambda: False) as place:
            return place

    def made(self) -> list[dict[str, Any]]:
        """The calls of the tools."""
        return [json.loads(line) for line in self.calls.read_text().splitlines()] if self.calls.exists() else []

    def folders(self) -> list[Path]:
        return [path for path in (self.cache / "environments").iterdir() if path.is_dir()]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    found = Node(tmp_path)
    monkeypatch.setattr(environment_folder, "_SPARE_BYTES", 0)  # however full the disk is
    monkeypatch.setenv("PATH", str(found.bin))
    for name in list(os.environ):
        if name.startswith(("CONDA", "MAMBA", "PIP_")):
            monkeypatch.delenv(name)
    return found


@pytest.mark.parametrize(("name", "begin"), [("micromamba", ["create", "--yes"]), ("conda", ["env", "create"])])
def test_an_environment_is_built_once_by_the_tool_that_is_there(
    node: Node, name: str, begin: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conda.stand_in(node.bin, name)
    monkeypatch.setenv("CONDA_PREFIX", "/opt/conda")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    place = node.built("numpy")
    assert node.built("numpy") == place == node.folders()[0]
    (call,) = node.made()
    assert call["arguments"][:-1] == [*begin, "--prefix", str(place), "--file"]
    assert call["arguments"][-1].endswith("environment.yml")
    assert call["env"].keys().isdisjoint({"CONDA_PREFIX", "PYTHONPATH"})
    assert call["env"]["CONDA_PKGS_DIRS"] == str(node.cache / "conda" / "packages")
    assert "Executing transaction: done" in capfd.readouterr().err, "the output is the rank's log"
    assert node.built("numpy", "scipy") != place and len(node.made()) == 2


def test_a_program_finds_the_environments_python_first(node: Node) -> None:
    conda.stand_in(node.bin, "conda")
    place = node.built()
    env = within(place, {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/ours", "LR": "1"}, conda=True)
    assert "VIRTUAL_ENV" not in env and env["LR"] == "1"
    script = "python -c \"import os, sys; print(sys.prefix, os.environ['CONDA_PREFIX'])\""
    done = subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(place), str(place)], done.stderr


def test_micromamba_is_used_where_both_are_there(node: Node) -> None:
    for name in ("conda", "micromamba"):
        conda.stand_in(node.bin, name)
    node.built()
    assert [call["name"] for call in node.made()] == ["micromamba"]


def test_a_node_without_either_says_what_to_install(node: Node) -> None:
    with pytest.raises(EnvironmentNotBuilt, match=r"neither micromamba nor conda .* env\.python") as failed:
        node.built()
    assert failed.value.cause == NOT_BUILT and node.folders() == []


@pytest.mark.parametrize("name", ["micromamba", "conda"])
def test_a_failure_is_one_line_that_names_the_package_and_leaves_nothing(node: Node, name: str) -> None:
    conda.stand_in(node.bin, name)
    for package, cause in (("none-such", NOT_BUILT), ("far-away", UNREACHABLE)):
        with pytest.raises(EnvironmentNotBuilt) as failed:
            node.built(package)
        said = str(failed.value)
        assert failed.value.cause == cause and "\n" not in said and len(said) <= 500
        assert ("none-such" if cause == NOT_BUILT else "conda.anaconda.org") in said
        assert said.startswith(("error libmamba", "critical libmamba", "LibMamba", "CondaHTTPError"))
    assert node.folders() == []


@pytest.mark.parametrize("name", ["micromamba", "conda"])
def test_what_the_node_lacks_is_no_fault_of_the_packages(node: Node, name: str) -> None:
    conda.stand_in(node.bin, name)
    for package, cause, said in (
        ("large", cache_disk.FULL, "No space left on device"),
        ("killed", NOT_PREPARED, f"{name} was killed by SIGKILL"),
    ):
        with pytest.raises(EnvironmentNotBuilt, match=said) as failed:
            node.built(package)
        assert failed.value.cause == cause


def test_the_first_error_counts_and_warnings_do_not() -> None:
    output = (
        "warning  libmamba The specification of the environment does not seem solvable\n"
        "ERROR: Could not find a version that satisfies the requirement gamma (from versions: none)\n"
        "ERROR: No matching distribution found for gamma\ncritical libmamba pip failed to install packages\n"
    )
    assert first_error(output).startswith("ERROR: Could not find a version that satisfies the requirement gamma")
    assert first_error("warning  libmamba error\nall is well\n") == ""


def test_an_environment_without_python_is_none(node: Node) -> None:
    conda.stand_in(node.bin, "conda")
    with pytest.raises(EnvironmentNotBuilt, match="conda has built an environment without Python"):
        node.built("pythonless")
    assert node.folders() == []


def test_a_rank_that_is_to_stop_ends_the_build(node: Node) -> None:
    conda.stand_in(node.bin, "conda")
    node.file.write_text("dependencies: [python, slow]\n")
    with pytest.raises(EndRequested), conda_environment(node.file, node.cache, node.calls.exists):
        pass
    assert node.folders() == []
    until(
        lambda: not any(_runs(process, node.bin / "conda") for process in Path("/proc").iterdir()),
        PATIENCE_S,
        "its end",
    )


def _runs(process: Path, script: Path) -> bool:
    try:
        return process.name.isdigit() and str(script).encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_a_build_has_a_time_limit(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    conda.stand_in(node.bin, "conda")
    monkeypatch.setattr(environment_folder, "BUILD_S", 0.5)
    with pytest.raises(EnvironmentNotBuilt, match=r"longer than 0\.5 s") as failed:
        node.built("slow")
    assert failed.value.cause == NOT_PREPARED


def test_kept_packages_are_removed_where_room_is_short(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    conda.stand_in(node.bin, "micromamba")
    monkeypatch.setattr(environment_folder, "_SPARE_BYTES", 1 << 60)
    node.built()
    assert [call["arguments"][0] for call in node.made()] == ["clean", "create"]
    monkeypatch.setenv("CONDA_PKGS_DIRS", "/shared/packages")
    node.built("numpy")
    assert [call["arguments"][0] for call in node.made()] == ["clean", "create", "create"]
    assert node.made()[-1]["env"]["CONDA_PKGS_DIRS"] == "/shared/packages"


def test_packages_are_not_removed_while_another_environment_is_built(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    conda.stand_in(node.bin, "micromamba")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(node.built, "slow")
        try:
            until(lambda: node.calls.exists() and node.calls.read_text().endswith("\n"), PATIENCE_S, "its begin")
            monkeypatch.setattr(environment_folder, "_SPARE_BYTES", 1 << 60)
            node.built("numpy")
            assert [call["arguments"][0] for call in node.made()] == ["create", "create"]
        finally:
            (node.bin / "go").touch()
        slow.result(PATIENCE_S)
    node.built("scipy")
    assert [call["arguments"][0] for call in node.made()] == ["create", "create", "clean", "create"]
