"""Folders of processes that died are removed by the next one, and no others."""

import os
import subprocess
import sys
from pathlib import Path

from harness.patience import PATIENCE_S

from shardyard.workers.locked_folder import locked_folder, open_locked, remove_unused

#: Makes a folder, and is killed.
DIES = """
import os, pathlib, sys
from shardyard.workers.locked_folder import open_locked
folder, _ = open_locked("mine-", pathlib.Path(sys.argv[1]))
(folder / "file").touch()
os.kill(os.getpid(), 9)
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    used, lock = open_locked("mine-", tmp_path)
    (tmp_path / "mine-other").mkdir()
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], timeout=PATIENCE_S, check=False)
    assert len([*tmp_path.iterdir()]) == 3
    with locked_folder("mine-", tmp_path) as mine:
        assert {*tmp_path.iterdir()} == {used, mine, tmp_path / "mine-other"}
        assert mine.stat().st_mode & 0o777 == 0o700
        os.close(lock)
        remove_unused("mine-", tmp_path)
        assert {*tmp_path.iterdir()} == {mine, tmp_path / "mine-other"}
    assert not mine.exists()


def test_a_link_to_another_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    with locked_folder("mine-", tmp_path) as folder:
        name = folder.name[:-8]  # without its random letters
    (tmp_path / f"{name}trapped").symlink_to(tmp_path / "precious")
    remove_unused("mine-", tmp_path)
    assert (tmp_path / "precious").is_dir()
