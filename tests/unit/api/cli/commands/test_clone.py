"""The text that an editor has changed is submitted, and removed once it is."""

import stat
from pathlib import Path
from typing import Any

import pytest
import typer
from harness.client_stand_in import ClientStandIn

from shardyard.api.cli.commands import clone as command
from shardyard.api.client import ApiError
from shardyard.api.spec_file import read
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.submitted_spec import SubmittedSpec

TEXT = "name: tiny  # the smallest\ncommand: [python, train.py]\n"
#: An editor that keeps the text that it found, as many do.
EDITOR = """#!/bin/sh
cp "$1" "$1~"
sed -i 's/train/eval/' "$1"
"""


class Service(ClientStandIn):
    """A client of a service that has one job."""

    text = TEXT

    def job(self, _: str) -> Job:
        spec = {"name": "tiny", "command": ["python", "train.py"]}
        return Job.model_validate({"id": "job-1", "name": "tiny", "state": "failed", "spec": spec, "created_at": 1.0})

    def submitted_spec(self, job: str) -> SubmittedSpec:
        return SubmittedSpec(job=job, format="yaml", text=self.text)


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    path, folder = tmp_path / "editor", tmp_path / "temporary"
    path.write_text(EDITOR)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    folder.mkdir()
    monkeypatch.setenv("VISUAL", str(path))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(command, "Client", Service)
    return folder


def test_paths_that_are_typed_are_relative_to_the_working_folder(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of the text that stays, wherever it is submitted from."""
    (tmp_path / "editor").write_text(
        "#!/bin/sh\nprintf 'code: {dir: src}  # mine\nfiles: {data: ../corpus}\n' >> \"$1\"\n"
    )
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    submitted: list[Any] = []

    def submit_job(_screen: object, _client: object, given: Any, *_: object, **__: object) -> None:
        submitted.append(given.document)
        raise ApiError("invalid_spec", "It is wrong.", 422, [])

    monkeypatch.setattr(command, "submit_job", submit_job)
    with pytest.raises(ApiError):
        command.clone("tiny", edit=True)
    (kept,) = left.rglob("tiny.yaml")
    assert "# mine" in kept.read_text() and "# the smallest" in kept.read_text()
    for document in (*submitted, read(kept).document):
        assert document["code"] == {"dir": str(tmp_path / "work/src")}
        assert document["files"] == {"data": str(tmp_path / "work/../corpus")}


def test_edited_code_from_elsewhere_is_uploaded(left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive of the old code would be run, whatever the text says."""
    code = f"code: {{git: /repository, ref: v1, archive: '{'0' * 64}'}}\n"
    monkeypatch.setattr(Service, "text", TEXT + code)
    submitted: list[Any] = []
    monkeypatch.setattr(command, "submit_job", lambda _, __, given, *___, **____: submitted.append(given.document))
    for script in ("s/v1/v2/", "s/train/eval/"):
        (tmp_path / "editor").write_text(f'#!/bin/sh\nsed -i "{script}" "$1"\n')
        command.clone("tiny", edit=True)
    assert [document["code"].get("archive") for document in submitted] == [None, "0" * 64]


REFUSED = ApiError("invalid_spec", "It is wrong.", 422, [])


@pytest.mark.parametrize("ends", [None, typer.Exit(0), REFUSED, KeyboardInterrupt(), OSError(28, "No space left")])
def test_the_text_stays_only_if_it_was_not_submitted(
    left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ends: BaseException | None
) -> None:
    """Where it stays is said, with the key of the submission: what was stored already is no second job."""
    submitted: list[Any] = []
    keys: list[Any] = []

    def submit_job(_screen: object, _client: object, given: Any, key: Any, *_: object, **__: object) -> None:
        submitted.append(given.document)
        keys.append(key)
        if ends is not None:
            raise ends

    monkeypatch.setattr(command, "submit_job", submit_job)
    try:
        command.clone("tiny", edit=True)
    except (typer.Exit, ApiError, OSError, KeyboardInterrupt) as error:
        assert error is ends
    assert [document["command"] for document in submitted] == [["python", "eval.py"]]
    kept = sorted(left.rglob("*.yaml"))
    said = [f"Your text is kept. Submit it with: shardyard submit {path} --key {keys[0]}" for path in kept]
    assert keys[0]
    assert [path.name for path in kept] == ([] if ends is None or isinstance(ends, typer.Exit) else ["tiny.yaml"])
    assert capsys.readouterr().err.splitlines() == said
    assert bool(list(left.iterdir())) is bool(kept)


def test_a_full_disk_leaves_the_text_as_it_was_edited(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "editor").write_text("#!/bin/sh\nprintf 'code: {dir: src}  # mine\n' >> \"$1\"\n")

    def full(path: Path, _: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(command, "write_whole", full)
    with pytest.raises(OSError, match="No space left"):
        command.clone("tiny", edit=True)
    (kept,) = left.rglob("tiny.yaml")
    assert "dir: src}  # mine" in kept.read_text() and f"shardyard submit {kept}" in capsys.readouterr().err
