"""Relative paths in a spec count from its own folder."""

import json
import os
from pathlib import Path

import pytest

from shardyard.api.client import requests
from shardyard.api.errors import SpecFileMissing
from shardyard.api.spec_document import parse
from shardyard.api.spec_file import GivenSpec, absolute, load, read, text_of
from shardyard.workers.data.corpus import sources
from shardyard.workers.spec import DataSpec


def test_paths_count_from_the_specs_folder(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        "train:\n  data: {files: [a.txt, /b/*.txt], tokenizer: tok.json}\n  model: {import: 'm:f', code: .}\n"
        "  resume_from: ./old\n"
    )
    train = load(tmp_path / "spec.yaml")["train"]
    assert train["data"] == {"files": [f"{tmp_path}/a.txt", "/b/*.txt"], "tokenizer": f"{tmp_path}/tok.json"}
    assert train["model"]["code"] == str(tmp_path)
    assert train["resume_from"] == f"{tmp_path}/old"


def test_brackets_in_the_name_of_the_specs_folder_are_no_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "[proj]"
    folder.mkdir()
    for name in ("a.txt", "b.txt", "part[1].txt"):
        (folder / name).write_text(name)

    def found(*names: object) -> list[str]:
        given = {"train": {"data": {"source": "text", "files": [*names]}}}
        data = DataSpec.model_validate(absolute(given, folder)["train"]["data"])
        return [source.path.name for source in sources(data)]

    assert found("?.txt") == found("./[ab].txt") == ["a.txt", "b.txt"]
    assert found("part[1].txt", "a.txt") == ["part[1].txt", "a.txt"], "a name with brackets is a name first"
    assert found(str(tmp_path / "?proj?" / "a.txt")) == ["a.txt"], "an absolute path is a pattern as it is"
    assert absolute({"train": {"data": {"files": [3, None]}}}, folder) == {"train": {"data": {"files": [3, None]}}}


def test_the_checkpoints_of_a_program_count_from_the_specs_folder(tmp_path: Path) -> None:
    given = {"checkpoint": {"uri": "saved", "keep": 3}, "resume_from": "../old/step-00000003"}
    found = absolute({"command": "true", **given}, tmp_path / "specs")
    assert found["checkpoint"] == {"uri": f"{tmp_path}/specs/saved", "keep": 3}
    assert Path(found["resume_from"]).resolve() == tmp_path / "old/step-00000003"
    kept = {"command": "true", "checkpoint": {"uri": "s3://bucket/a"}, "resume_from": "a-job"}
    assert absolute(kept, tmp_path) == kept


def test_names_are_not_paths(tmp_path: Path) -> None:
    train = {"data": {"tokenizer": "bytes"}, "resume_from": "quickstart"}
    assert absolute({"train": train}, tmp_path) == {"train": train}


def test_a_mapping_counts_from_the_working_folder_and_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"train": {"data": {"files": ["a"]}}}
    assert load(document)["train"]["data"]["files"] == [f"{Path.cwd()}/a"]
    assert document == {"train": {"data": {"files": ["a"]}}}


@pytest.mark.parametrize("document", [None, [], "x", {"train": 3}, {"train": {"data": [], "model": "x"}}])
def test_other_shapes_are_left_for_the_server(document: object, tmp_path: Path) -> None:
    assert absolute(document, tmp_path) == document


def test_json_is_read_as_json(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"name": "a"}')
    assert load(tmp_path / "spec.json") == {"name": "a"}


def test_a_file_is_read_once(tmp_path: Path) -> None:
    # As `shardyard submit <(make-spec)` and `/dev/stdin`: nothing is left in a pipe that was read.
    reader, writer = os.pipe()
    os.write(writer, b"name: a  # mine\ncommand: [python, a.py]\ncwd: sub\n")
    os.close(writer)
    found = read(f"/dev/fd/{reader}")
    os.close(reader)
    assert found.document["cwd"] == f"{Path.cwd()}/sub", "a pipe is in no folder"
    changed = text_of(read(found), found.document | {"name": "b", "cwd": "sub"})
    assert changed == "name: b  # mine\ncommand: [python, a.py]\ncwd: sub\n"
    (tmp_path / "spec.json").write_text('{"name": "a"}')
    assert read(tmp_path / "spec.json") == GivenSpec({"name": "a"})


def test_a_document_with_many_values_is_not_sent_longer_than_it_is() -> None:
    few, many = {"names": ["a"]}, {"names": ["a"] * 100_000}
    assert requests.submit(few, None, GivenSpec(few)).content == json.dumps(few, indent=2).encode()
    assert requests.submit(many, None, GivenSpec(many)).content == json.dumps(many).encode()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecFileMissing, match=r"gone\.yaml: No such file"):
        load(tmp_path / "gone.yaml")


def test_a_models_folder_counts_from_the_specs_folder(tmp_path: Path) -> None:
    assert absolute({"train": {"model": {"from": "m"}}}, tmp_path) == {"train": {"model": {"from": f"{tmp_path}/m"}}}


def test_a_file_of_requirements_counts_from_the_specs_folder_or_that_of_the_code(tmp_path: Path) -> None:
    env = {"python": "requirements.txt"}
    assert absolute({"env": env}, tmp_path)["env"] == {"python": f"{tmp_path}/requirements.txt"}
    assert absolute({"env": env, "code": {"dir": "."}}, tmp_path)["env"] == env
    assert absolute({"env": {"python": ["einops"]}}, tmp_path)["env"] == {"python": ["einops"]}
    assert absolute({"env": {"conda": "a.yml"}}, tmp_path)["env"] == {"conda": f"{tmp_path}/a.yml"}


def test_a_plan_is_written_into_the_text_beside_its_comments(tmp_path: Path) -> None:
    """As the client adds it to a submission."""
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: a\ntrain:\n  model: { import: 'net:make' }  # mine\n  steps: 1\n  global_batch: 2\n# the end\n"
    )
    given = read(path)
    plan = {"of": "0" * 64, "ranks": 1, "parameters": 3, "at_peak": {"parameters": 4}, "host_bytes": 0}
    document = {**given.document, "train": {**given.document["train"], "planned": plan}}
    text = text_of(given, document) or ""
    assert "# mine" in text and "# the end" in text and parse(text.encode(), "yaml") == document


def test_an_address_stays_as_it_is_for_the_server_to_refuse(tmp_path: Path) -> None:
    model = {"from": "hf://a/b", "code": "s3://bucket/code"}
    train = {"data": {"files": ["s3://bucket/a.txt"], "tokenizer": "https://a.b/tokenizer.json"}, "model": model}
    assert absolute({"train": train}, tmp_path) == {"train": train}
