"""A digest changes with a name or a byte of a module, and with nothing else."""

from pathlib import Path

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.certificate import own_code
from shardyard.workers.certificate.own_code import digest


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        target = path / name.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.with_suffix(".py").write_text(text)
    return path


def test_only_modules_count(tmp_path: Path) -> None:
    first = digest(folder(tmp_path / "a", model="x = 1", parts__block="y = 2"))
    same = folder(tmp_path / "b", parts__block="y = 2", model="x = 1", **{".git__hook": "no module"})
    (same / "notes.txt").write_text("no module")
    (same / "__pycache__").mkdir()
    (same / "__pycache__" / "model.py").write_text("no module")
    assert digest(same) == first
    for changed in (
        folder(tmp_path / "c", model="x = 2", parts__block="y = 2"),
        folder(tmp_path / "d", model="x = 1", parts__other="y = 2"),
        folder(tmp_path / "e", model="x = 1"),
    ):
        assert digest(changed) != first


def test_what_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        digest(tmp_path / "absent")
    (tmp_path / "link.py").symlink_to("/dev/zero")
    with pytest.raises(Refusal, match="cannot be read"):
        digest(tmp_path)
    monkeypatch.setattr(own_code, "MOST_FILES", 1)
    with pytest.raises(Refusal, match="more than 1"):
        digest(folder(tmp_path / "many", a="", b=""))
