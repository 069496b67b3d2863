"""A file over its time budget is named, and fails a run that holds files to their budgets. pytest runs in a folder of the test's own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: The inner run's clock stands still but for what its tests and fixtures add to it.
CLOCK = """
import time

import pytest
from _pytest import timing

added = [0.0]
time.perf_counter = timing.perf_counter = lambda: sum(added)


@pytest.fixture
def spend():
    return added.append


@pytest.fixture(scope="session")
def inner():
    added.append(1000)
    yield
    added.append(1000)


@pytest.fixture(scope="session")
def shared(request):
    added.append(1000)
    request.getfixturevalue("inner")
    yield
    added.append(1000)


@pytest.fixture(scope="module")
def own():
    added.append(100)
    yield
    added.append(30)
"""

GROWN = """
def test_it(spend):
    spend(60)
"""
SHARES = """
def test_first(shared, own, spend):
    spend(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of tests, of which the first takes a minute more than its budget."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tests / "conftest.py").write_text(CLOCK)
    (tests / "test_grown.py").write_text(GROWN)
    (tests / "test_shares.py").write_text(SHARES)
    (tests / "budgets.json").write_text(json.dumps({"tests/test_grown.py": 0.1, "tests/test_shares.py": 137.0}))
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "harness.budgets", "-p", "xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(
    ("mode", "code", "beside"), [("name", 0, ()), ("hold", 1, ()), ("hold", 1, ("-n", "1"))], ids=str
)
def test_a_file_over_its_budget_is_named_and_fails_the_run_that_holds_it(
    folder: Path, mode: str, code: int, beside: Sequence[str]
) -> None:
    done = run(folder, f"--budgets={mode}", *beside)
    assert done.returncode == code, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "tests/test_grown.py took 60 s" in done.stdout
    assert "test_shares.py took" not in done.stdout


def test_a_run_within_its_budgets_passes(folder: Path) -> None:
    done = run(folder, "--budgets=hold", "tests/test_shares.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its budget" not in done.stdout


@pytest.mark.parametrize("beside", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_what_files_share_counts_for_none_of_them(folder: Path, beside: Sequence[str]) -> None:
    assert run(folder, "--budgets=write", *beside).returncode == 0
    written = json.loads((folder / "tests" / "budgets.json").read_text())
    assert written == {"tests/test_grown.py": 60.0, "tests/test_shares.py": 100.0 + 7.0 + 30.0}


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("target", "mode"), [("test", "name"), ("budgets", "hold")])
def test_each_target_runs_the_same_tests_in_its_mode(target: str, mode: str) -> None:
    command = ["make", "--no-print-directory", "--dry-run", target]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=True)
    [line] = [line for line in said.stdout.splitlines() if "--budgets" in line]
    assert 'pytest -m "not gpu and not full and not timing"' in line and f"--budgets={mode}" in line
