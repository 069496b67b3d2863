"""Completion as shells ask for it: commands, options and names of jobs; quick and silent where no server answers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC, Plane, until


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `shardyard` is this source tree."""
    command = tmp_path / "bin" / "shardyard"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m shardyard.api.cli "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}{os.pathsep}{os.environ['PATH']}"


def completed(words: list[str], url: str, **more: str) -> list[str]:
    """What the command line itself answers to bash's question."""
    asked = {"_SHARDYARD_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-m", "shardyard.api.cli"]
    settings = {**os.environ, **asked, "SHARDYARD_URL": url, **more}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_names_of_jobs(plane: Plane, client: Client, path: str) -> None:
    for name in ("tiny-one", "tiny-two", "other", "tiny-one"):
        client.submit({**SPEC, "name": name})
    asked = "COMP_WORDS=(shardyard watch ti); COMP_CWORD=2; _shardyard_completion shardyard; echo ${COMPREPLY[@]}"
    script = f"source <(shardyard completion bash); {asked}"
    settings = {**os.environ, "PATH": path, "SHARDYARD_URL": plane.url}
    bash = [shutil.which("bash") or "bash", "--norc", "-c", script]

    def answered() -> bool:
        done = subprocess.run(bash, env=settings, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.stderr == ""
        return done.stdout.split() == ["tiny-one", "tiny-two"]

    until(answered)  # a machine under load may need longer than a shell is let wait


def test_ids_commands_and_options(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    until(lambda: completed(["shardyard", "show", job.id[:8]], plane.url) == [job.id])
    assert completed(["shardyard", "che"], plane.url) == ["checkpoints"]
    assert completed(["shardyard", "checkpoints", "--ver"], plane.url) == ["--verify"]
    until(lambda: completed(["shardyard", "compare", "tiny", "ti"], plane.url) == ["tiny"])


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_ask_in_their_own_way(shell: str, plane: Plane, client: Client) -> None:
    client.submit(SPEC)
    asked = {"_TYPER_COMPLETE_ARGS": "shardyard watch ti", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    settings = {**os.environ, **asked, "_SHARDYARD_COMPLETE": f"complete_{shell}", "SHARDYARD_URL": plane.url}
    command = [sys.executable, "-m", "shardyard.api.cli"]

    def answered() -> bool:
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.stderr == ""
        return "tiny" in done.stdout

    until(answered)


def test_without_a_server_nothing_is_completed_and_nothing_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from shardyard.api.cli.job_names import job_names

    for url in ("http://127.0.0.1:1", "nonsense"):
        monkeypatch.setenv("SHARDYARD_URL", url)
        assert job_names("ti") == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("shell", "part"), [("bash", "complete -o default"), ("zsh", "#compdef"), ("fish", "complete ")]
)
def test_every_shell_has_a_script(shell: str, part: str, capsys: Any) -> None:
    assert run(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert part in printed
    assert "_SHARDYARD_COMPLETE" in printed


def test_other_shells_are_refused_with_those_that_there_are(capsys: Any) -> None:
    assert run(["completion", "csh"]) == 1
    printed = capsys.readouterr().err
    assert "zsh" in printed
    assert "shardyard completion --help" in printed
