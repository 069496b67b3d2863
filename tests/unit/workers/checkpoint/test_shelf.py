"""Room is made without taking the checkpoint that was saved last."""

from pathlib import Path

import pytest

from shardyard.workers.checkpoint.manifest import MANIFEST, File, Manifest, write
from shardyard.workers.checkpoint.shelf import clear, complete, folder, prune


def shelve(root: Path, *steps: int) -> None:
    for step in steps:
        path = folder(root, step)
        path.mkdir()
        (path / "rank-00000").write_bytes(b"weights")
        write(path, Manifest(step, {}, {}, {"rank-00000": File(7, "", ())}))


def steps(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in root.iterdir())


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (2, [3, 4]), (3, [2, 3, 4]), (9, [1, 2, 3, 4])])
def test_the_newest_stay(tmp_path: Path, keep: int, left: list[int]) -> None:
    shelve(tmp_path, 1, 2, 3, 4)
    prune(tmp_path, keep, folder(tmp_path, 4))
    assert steps(tmp_path) == left
    assert [int(path.name[5:]) for path in complete(tmp_path)] == left[::-1]


def test_what_was_saved_last_stays_though_it_is_of_an_earlier_step(tmp_path: Path) -> None:
    shelve(tmp_path, 2, 3, 8)  # 8 is damaged: training went back to 2 and saved 3
    prune(tmp_path, 1, folder(tmp_path, 3))
    assert complete(tmp_path) == [folder(tmp_path, 3)]


@pytest.mark.parametrize("lost", [MANIFEST, "rank-00000"])
def test_nothing_goes_when_the_last_one_is_not_in_place(tmp_path: Path, lost: str) -> None:
    shelve(tmp_path, 1, 2, 3)
    (folder(tmp_path, 3) / lost).write_bytes(b"")
    prune(tmp_path, 1, folder(tmp_path, 3))
    assert steps(tmp_path) == [1, 2, 3]


def test_saves_that_were_cut_off_go_when_they_are_older(tmp_path: Path) -> None:
    shelve(tmp_path, 1, 2, 3, 4)
    for step in (2, 4):
        (folder(tmp_path, step) / MANIFEST).unlink()
    prune(tmp_path, 5, folder(tmp_path, 3))
    assert steps(tmp_path) == [1, 3, 4]
    assert complete(tmp_path) == [folder(tmp_path, 3), folder(tmp_path, 1)]


def test_a_folder_is_cleared_of_earlier_saves_of_its_step(tmp_path: Path) -> None:
    shelve(tmp_path, 1)
    path = folder(tmp_path, 1)
    (path / "rank-00000-earlier").write_bytes(b"weights")
    clear(path, Manifest(1, {}, {}, {"rank-00000": File(7, "", ())}))
    assert sorted(file.name for file in path.iterdir()) == [MANIFEST, "rank-00000"]
