"""The exit codes are the same in the code, in the help and in the README."""

import re
from pathlib import Path

import pytest

from shardyard.api.cli.exit_codes import MEANING, ExitCode, of_state
from shardyard.api.cli.main import run
from shardyard.service.states import FINAL

ROOT = Path(__file__).parents[4]


def test_every_code_is_explained_once() -> None:
    assert set(MEANING) == set(ExitCode)


def test_readme_and_help_list_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert rows == {str(code.value): meaning for code, meaning in MEANING.items()}
    assert run(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{code.value} {meaning}" in shown for code, meaning in MEANING.items())


def test_a_jobs_end_has_a_code_of_its_own() -> None:
    codes = {of_state(state) for state in FINAL}
    assert codes == {ExitCode.SUCCEEDED, ExitCode.FAILED, ExitCode.CANCELLED}
