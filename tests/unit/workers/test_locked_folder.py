"""A folder for temporary files: private, locked while it is used, and removed when its process was killed."""

from pathlib import Path

from shardyard.workers.locked_folder import locked_folder


def test_a_folder_that_no_process_uses_is_removed_by_the_next_one(tmp_path: Path) -> None:
    with locked_folder("shardyard-a-", tmp_path) as used:
        left = used.with_name(f"{used.name}x")
        (left / "r").mkdir(parents=True)
        elsewhere = tmp_path / "shardyard-a-other"
        elsewhere.mkdir()
        with locked_folder("shardyard-a-", tmp_path) as mine:
            assert used.is_dir() and mine.is_dir() and not left.exists() and elsewhere.is_dir()
            assert mine.stat().st_mode & 0o777 == 0o700
    assert not used.exists() and not mine.exists()


def test_a_link_to_another_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    with locked_folder("shardyard-a-", tmp_path) as folder:
        prefix = folder.name[:-8]
    (tmp_path / f"{prefix}trapped").symlink_to(tmp_path / "precious")
    with locked_folder("shardyard-a-", tmp_path):
        assert (tmp_path / "precious").is_dir()
