"""`init` writes specs that can run, comments included, and overwrites nothing unasked."""

from itertools import product
from pathlib import Path

import pytest
import yaml

from shardyard.api.cli.commands.init import Answers, written
from shardyard.api.cli.main import run
from shardyard.api.errors import InvalidDocument
from shardyard.api.http.validation_errors import read_spec
from shardyard.api.spec_document import parse
from shardyard.service.errors import ShardyardError
from shardyard.workers.models.presets import PRESETS


def test_the_defaults_are_a_commented_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "job.yaml"
    assert run(["init", str(path), "--yes"]) == 0
    text = path.read_text()
    assert read_spec(yaml.safe_load(text)).train.layout.world_size == 2
    assert text.count("#") > 12
    assert f"shardyard run {path}" in capsys.readouterr().err


def test_a_file_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("mine")
    assert run(["init", str(path), "--yes"]) == 1
    assert path.read_text() == "mine"
    assert f"shardyard init {path} --force" in capsys.readouterr().err
    assert run(["init", str(path), "--yes", "--force"]) == 0
    assert "name: my-job" in path.read_text()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(["init", str(tmp_path / "file" / "job.yaml"), "--yes"]) == 1
    assert "shardyard init" in capsys.readouterr().err


@pytest.mark.parametrize(("family", "degrees"), list(product(PRESETS, [(1, 1, 1), (4, 1, 1), (1, 2, 2)])))
def test_every_family_and_degree_gives_a_spec_that_is_read(family: str, degrees: tuple[int, int, int]) -> None:
    data, tensor, pipeline = degrees
    answers = Answers(family=family, data=data, tensor=tensor, pipeline=pipeline, files="texts/*.txt")
    spec = read_spec(yaml.safe_load(written(answers, Path("here.yaml"))))
    assert spec.train.layout.world_size == data * tensor * pipeline
    assert spec.train.data.files == ["texts/*.txt"]


def test_what_does_not_go_together_is_refused_with_its_field() -> None:
    with pytest.raises(ShardyardError) as refusal:
        written(Answers(tensor=16), Path("here.yaml"))
    assert "tensor" in (refusal.value.field or "")


@pytest.mark.parametrize("name", ["2026-11-30", "2026-13-45", "2026", "on", "null", "1e3", "0x1f", "12-30", "my-job"])
def test_every_legal_name_is_read_as_text_by_both_versions_of_yaml(name: str) -> None:
    text = written(Answers(name=name), Path("here.yaml"))
    assert parse(text.encode(), "yaml")["name"] == yaml.safe_load(text)["name"] == name


@pytest.mark.parametrize("name", ["My Job", "a: b", "[", "x # y", ""])
def test_a_name_that_is_not_legal_is_refused_with_its_field(name: str) -> None:
    with pytest.raises(InvalidDocument) as refusal:
        written(Answers(name=name), Path("here.yaml"))
    assert [finding.field for finding in refusal.value.errors] == ["name"]
