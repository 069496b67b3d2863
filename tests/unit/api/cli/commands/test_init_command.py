"""`init --command` writes specs of programs that can run, comments included."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shardyard.api.cli.commands.init_command import written
from shardyard.api.cli.main import run
from shardyard.api.http.validation_errors import read_spec
from shardyard.api.spec_document import parse


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("python train.py --epochs 3 --name 'a b'", ["python", "train.py", "--epochs", "3", "--name", "a b"]),
        ("python train.py --lr 1e-3 --on yes", ["python", "train.py", "--lr", "1e-3", "--on", "yes"]),
        ("../train.sh 0o17 .5e3 a,b", ["../train.sh", "0o17", ".5e3", "a,b"]),
        ("source venv/bin/activate && python train.py", "source venv/bin/activate && python train.py"),
        ('LR=0.1 python train.py "x: y"', 'LR=0.1 python train.py "x: y"'),
    ],
)
def test_the_spec_runs_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, read: str | list[str]
) -> None:
    path = tmp_path / "job.yaml"
    assert run(["init", str(path), "--command", command, "--yes"]) == 0
    for document in (yaml.safe_load(path.read_text()), parse(path.read_bytes(), "yaml")):  # of YAML 1.1 and 1.2
        spec: Any = read_spec(document)
        assert (spec.command, spec.ranks, spec.code.dir, spec.env) == (read, 2, ".", None)
    assert path.read_text().count("#") > 8
    assert f"Run it with: shardyard run {path}" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["requirements.txt", "uv.lock", "pyproject.toml"])
def test_the_packages_of_the_folder_are_named(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("")
    assert run(["init", str(tmp_path / "job.yaml"), "--command", "python train.py", "--yes"]) == 0
    spec: Any = read_spec(yaml.safe_load((tmp_path / "job.yaml").read_text()))
    assert spec.env.python == file


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("torchrun train.py", 0, "torchrun starts ranks itself"),
        ("python 'train.py", 1, "No closing quotation"),
        ("  ", 1, "--command"),
    ],
)
def test_what_is_wrong_with_a_command_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, status: int, says: str
) -> None:
    path = tmp_path / "job.yaml"
    assert run(["init", str(path), "--command", command, "--yes"]) == status
    assert says in capsys.readouterr().err
    assert path.exists() is (status == 0)


@pytest.mark.parametrize("name", ["2026-11-30", "on", "1e3"])
def test_every_legal_name_is_read_as_text(name: str) -> None:
    text, _ = written(name, "python train.py", 1, Path("here.yaml"))
    assert parse(text.encode(), "yaml")["name"] == yaml.safe_load(text)["name"] == name
