"""Until a job has saved, all of its starts begin with the checkpoint that the first one chose."""

import pytest

from shardyard.workers.checkpoint.manifest import MANIFEST, Manifest, write
from shardyard.workers.checkpoint.resumed import chosen, note_chosen
from shardyard.workers.checkpoint.retention import complete, folder
from shardyard.workers.storage.folder import Folder


@pytest.fixture
def other(root: Folder) -> Folder:
    """The folder of a job that goes on training."""
    other = root / "other"
    for step in (100, 200):
        write(folder(other, step), Manifest(step, {}, {}, {}))
    return other


def test_a_newer_one_is_not_chosen_later(root: Folder, other: Folder) -> None:
    own = root / "own"
    assert chosen(own, other) == folder(other, 200)
    for _ in range(2):
        note_chosen(own, other, chosen(own, other))
        write(folder(other, 300), Manifest(300, {}, {}, {}))
    folder(other, 200).remove(MANIFEST)
    assert chosen(own, other) == folder(other, 200), "the restore says that it is gone"
    assert complete(own) == []


def test_a_choice_is_of_the_folder_that_the_spec_names(root: Folder, other: Folder) -> None:
    own, another = root / "own", root / "another"
    note_chosen(own, other, folder(other, 100))
    assert chosen(own, other) == folder(other, 100)
    assert chosen(own, folder(other, 200)) == folder(other, 200)
    assert chosen(own, another) == another
    write(folder(another, 7), Manifest(7, {}, {}, {}))
    assert chosen(own, another) == folder(another, 7)


def test_a_checkpoint_that_is_named_itself_is_no_choice(root: Folder, other: Folder) -> None:
    own, named = root / "own", folder(other, 100)
    note_chosen(own, named, chosen(own, named))
    assert own.files() == {}
