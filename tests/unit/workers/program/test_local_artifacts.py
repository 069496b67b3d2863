"""Files that are logged outside a job have their names there, and one that cannot be kept is said."""

from pathlib import Path

import pytest

from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.program.local_artifacts import LocalArtifacts


def stored(folder: Path, name: str, text: str, step: int | None = None) -> Artifact:
    digest = f"{text:f<64}"
    (folder / digest).write_text(text)
    return Artifact(name=name, step=step, type="file", bytes=len(text), sha256=digest, media_type="text/plain")


def test_each_name_and_step_has_a_file_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    named = LocalArtifacts(tmp_path, tmp_path / "kept")
    named.keep([stored(tmp_path, "a/b", "1"), stored(tmp_path, "a/b", "2", step=7), stored(tmp_path, "a/b", "3")])
    named.keep([stored(tmp_path, "a", "4"), stored(tmp_path, "c", "5")])
    named.keep([stored(tmp_path, "c/d", "6"), stored(tmp_path, "e", "7")])
    found = {
        str(path.relative_to(named.folder)): path.read_text() for path in named.folder.rglob("*") if path.is_file()
    }
    assert found == {"a/b": "3", "step-00000007/a/b": "2", "c": "5", "e": "7"}
    said = capfd.readouterr().err
    assert all(f"shardyard: {name} is not kept in {named.folder}: " in said for name in ("a", "c/d"))
