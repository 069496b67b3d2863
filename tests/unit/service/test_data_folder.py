"""The data folder is closed to other users, or refused."""

import os
import stat
from pathlib import Path

import pytest

from shardyard.api.cli.main import run
from shardyard.service.data_folder import close_to_others, make_private
from shardyard.service.errors import DataFolderOpen


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_it_is_made_closed_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "data")
    finally:
        os.umask(before)
    assert mode(tmp_path / "data") == 0o700


def test_one_that_was_open_is_closed_with_what_is_ours_in_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints").chmod(0o755)
    for name in ("shardyard.db", "shardyard.db-wal", "control.log", "ray.token", "notes"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o644)
    make_private(tmp_path)
    assert "0755" in caplog.text
    closed = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert closed.pop("checkpoints") == 0o700
    assert closed.pop("notes") == 0o644  # a user's own, and behind a closed door
    assert set(closed.values()) == {0o600}
    make_private(tmp_path)


@pytest.mark.parametrize(
    ("folder", "file", "is_named"), [(0o755, 0o644, True), (0o755, 0o600, False), (0o700, 0o644, False)]
)
def test_a_token_that_others_could_read_is_named(
    folder: int, file: int, is_named: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("")
    (tmp_path / "token").chmod(file)
    tmp_path.chmod(folder)
    make_private(tmp_path)
    assert mode(tmp_path / "token") == 0o600
    assert ("shardyard token --rotate" in caplog.text) == is_named


def test_a_link_to_a_closed_token_is_not_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, token = tmp_path / "data", tmp_path / "token"
    token.touch(0o600)
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "token").symlink_to(token)
    make_private(folder)
    assert "0755" in caplog.text and "--rotate" not in caplog.text


def test_a_link_in_it_changes_nothing_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    elsewhere.chmod(0o644)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "control.log").symlink_to(elsewhere)
    make_private(folder)
    close_to_others([folder / "control.log", folder / "nothing"])
    assert mode(elsewhere) == 0o644


def test_a_folder_that_all_users_share_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(DataFolderOpen) as refusal:
        make_private(tmp_path)
    assert "SHARDYARD_DATA_DIR" in (refusal.value.remedy or "")
    assert mode(tmp_path) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_users_folder_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(DataFolderOpen, match="65534"):
        make_private(tmp_path)


def test_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o1777)
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path))
    before = os.umask(0o022)
    try:
        assert run(["up"]) == 1
    finally:
        os.umask(before)
    assert "cannot be closed to other users" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
