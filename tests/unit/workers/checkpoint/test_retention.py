"""Room is made without taking the checkpoint that was saved last."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from harness.stored_checkpoints import published

from shardyard.workers.checkpoint import manifest as manifests
from shardyard.workers.checkpoint import retention
from shardyard.workers.checkpoint.commit import Committed, commit
from shardyard.workers.checkpoint.errors import CheckpointError, CheckpointRemoved
from shardyard.workers.checkpoint.manifest import MANIFEST, File, Manifest, Tensor, TensorSlice, read, write
from shardyard.workers.checkpoint.retention import (
    PINNED,
    clear,
    complete,
    folder,
    make_room,
    newest,
    note_corrupt,
    pin,
    prune,
    unpin,
)
from shardyard.workers.storage.errors import StorageUnreachable
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder


def shelve(root: Folder, *steps: int) -> None:
    for step in steps:
        path = folder(root, step)
        path.write("rank-00000", memoryview(b"weights"))
        write(path, Manifest(step, {}, {}, {"rank-00000": File(7, "", ())}))


def steps(root: Folder) -> list[int]:
    """Those of which anything is left. A bucket has no folders but by their files: SeaweedFS goes on listing the name of an empty one
    until it cleans up, minutes later (its issue 9810).
    """
    there = [name for name in root.folders() if isinstance(root, LocalFolder) or (root / name).files()]
    return sorted(int(name[5:]) for name in there)


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (2, [3, 4]), (3, [2, 3, 4]), (9, [1, 2, 3, 4])])
def test_the_newest_stay(root: Folder, keep: int, left: list[int]) -> None:
    shelve(root, 1, 2, 3, 4)
    assert prune(root, keep, published(folder(root, 4))) == tuple(left)
    assert steps(root) == left
    assert [int(path.name[5:]) for path in complete(root)] == left[::-1]


def test_steps_are_in_order_however_many_digits_they_have(root: Folder) -> None:
    shelve(root, 99_999_999, 100_000_000)
    assert newest(root) == folder(root, 100_000_000)
    assert prune(root, 1, published(folder(root, 100_000_000))) == (100_000_000,)


def test_what_was_saved_last_stays_though_it_is_of_an_earlier_step(root: Folder) -> None:
    shelve(root, 2, 3, 8)  # 8 is corrupt: training went back to 2 and saved 3
    folder(root, 9).write("rank-00000", memoryview(b"half"))  # a save that is being written
    assert prune(root, 1, published(folder(root, 3))) == (3,)
    assert complete(root) == [folder(root, 3)]
    assert steps(root) == [3, 9], "files of a pruned checkpoint take room for ever"


def test_one_that_is_noted_as_corrupt_takes_no_valid_ones_place(root: Folder) -> None:
    shelve(root, 300, 350)
    note_corrupt(folder(root, 350))  # training went back to 300
    shelve(root, 400)
    assert prune(root, 3, published(folder(root, 400))) == (300, 350, 400)
    assert prune(root, 2, published(folder(root, 400))) == (300, 400)
    note_corrupt(folder(root, 300))
    clear(published(folder(root, 300)))  # the step is saved again
    assert sorted(folder(root, 300).files()) == [MANIFEST, "rank-00000"]


@pytest.mark.parametrize("lost", [MANIFEST, "rank-00000"])
def test_nothing_goes_when_the_last_one_is_not_in_place(root: Folder, lost: str) -> None:
    shelve(root, 1, 2, 3)
    last = published(folder(root, 3))
    folder(root, 3).publish(lost, b"")
    assert prune(root, 1, last) is None
    assert steps(root) == [1, 2, 3]


def test_a_folder_of_the_users_own_beside_them_is_no_checkpoint(root: Folder) -> None:
    shelve(root, 1, 2, 3)
    mine = root / "step-00000002-good"
    mine.publish(MANIFEST, folder(root, 2).read(MANIFEST))
    assert prune(root, 1, published(folder(root, 3))) == (3,)
    assert complete(root) == [folder(root, 3)] and newest(root) == folder(root, 3)
    assert mine.has(MANIFEST)


def test_saves_that_were_cut_off_go_when_they_are_older(root: Folder) -> None:
    shelve(root, 1, 2, 3, 4)
    for step in (2, 4):
        folder(root, step).remove(MANIFEST)
    prune(root, 5, published(folder(root, 3)))
    assert steps(root) == [1, 3, 4]
    assert complete(root) == [folder(root, 3), folder(root, 1)]


def test_a_folder_is_cleared_of_earlier_saves_of_its_step(root: Folder) -> None:
    shelve(root, 1)
    path = folder(root, 1)
    path.write("rank-00000-earlier", memoryview(b"weights"))
    clear(published(path))
    assert sorted(path.files()) == [MANIFEST, "rank-00000"]


@pytest.mark.parametrize("removed", [True, False])
def test_nothing_goes_when_another_save_has_removed_or_replaced_the_manifest(root: Folder, removed: bool) -> None:
    shelve(root, 1, 2)
    path = folder(root, 2)
    path.write("rank-00000-of-another", memoryview(b"weights"))
    saved = published(path)
    if removed:
        path.remove(MANIFEST)
    else:
        write(path, Manifest(2, {"by": "another"}, {}, {"rank-00000": File(7, "", ())}))
    with pytest.raises(CheckpointError, match="replaced or removed step 2"):
        clear(saved)
    assert path.has("rank-00000-of-another")
    assert prune(root, 1, saved) is None and steps(root) == [1, 2]


def test_a_save_encodes_each_slice_once_and_parses_no_manifest(root: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 trains beside it, and both hold the interpreter lock."""
    shelve(root, 1, 3)  # the step is saved again
    pieces = (TensorSlice("weight", (0,), (2,), 8),)
    path, manifest = folder(root, 3), Manifest(3, {}, {"weight": Tensor("F32", (2,))}, {"again": File(7, "", pieces)})
    path.write("again", memoryview(b"weights"))
    encoded: list[str] = []

    def dumps(value: Any, **how: Any) -> str:
        encoded.append(json.dumps(value, **how))
        return encoded[-1]

    with monkeypatch.context() as counted:
        counted.setattr(manifests, "json", SimpleNamespace(dumps=dumps))  # has no `loads`
        done = commit(root, 1, manifest)
    assert done == Committed(manifest.sha256, (3,)) and read(path) == manifest
    assert sorted(path.files()) == ["again", MANIFEST] and steps(root) == [3]
    assert sum(text.count('["weight",[0],[2],8]') for text in encoded) == 1


def test_the_newest_whole_one_is_found_from_either_end(root: Folder) -> None:
    assert newest(root) is None
    shelve(root, 1, 2, 3)
    folder(root, 3).remove(MANIFEST)
    assert newest(root) == newest(folder(root, 2)) == folder(root, 2)


def test_pinned_ones_stay_until_they_are_unpinned(root: Folder) -> None:
    shelve(root, 1, 2, 3, 4)
    assert pin(folder(root, 2)).step == pin(folder(root, 2)).step == 2
    assert prune(root, 1, published(folder(root, 4))) == (2, 4)
    clear(published(folder(root, 2)))  # the step is saved again
    assert prune(root, 1, published(folder(root, 4))) == (2, 4)
    assert sorted(folder(root, 2).files()) == [MANIFEST, PINNED, "rank-00000"]
    unpin(folder(root, 2))
    unpin(folder(root, 1))
    assert prune(root, 1, published(folder(root, 4))) == (4,)
    assert steps(root) == [4]
    with pytest.raises(CheckpointError):
        pin(folder(root, 2))
    assert steps(root) == [4]


def test_pinned_ones_do_not_count(root: Folder) -> None:
    shelve(root, 1, 2, 3, 4)
    pin(folder(root, 3))
    assert prune(root, 2, published(folder(root, 4))) == (2, 3, 4)


def test_a_pin_that_is_repeated_while_a_save_prunes_stays(root: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    shelve(root, 1, 2)
    usual, path = type(root).has, folder(root, 1)
    began: list[str] = []

    def has(self: Folder, name: str) -> bool:
        if self == path and name == PINNED and not began:
            began.append(name)
            assert pin(path).step == 1
        return usual(self, name)

    pin(path)
    monkeypatch.setattr(type(root), "has", has)
    assert prune(root, 1, published(folder(root, 2))) == (1, 2)
    assert began and path.has(PINNED)


def test_a_repeated_pin_leaves_the_first_one_to_a_removal_that_looks_for_it(root: Folder) -> None:
    shelve(root, 1, 2)
    path = folder(root, 1)
    pin(path)
    path.publish("removing", b"")
    with pytest.raises(OSError, match="looking"):
        pin(path)
    assert prune(root, 1, published(folder(root, 2))) == (1, 2)


def test_what_cannot_be_marked_as_removed_stays(root: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pin that is written at the same time would not see the removal."""
    shelve(root, 1, 2)

    def refused(self: Folder, name: str, content: bytes, **how: bool) -> None:
        raise StorageUnreachable(f"{self} does not answer")

    with monkeypatch.context() as failing:
        failing.setattr(type(root), "publish", refused)
        assert prune(root, 1, published(folder(root, 2))) == (1, 2)
    assert prune(root, 1, published(folder(root, 2))) == (2,)


def test_a_checkpoint_whose_removal_died_is_whole_and_can_be_pinned_after_a_day(
    root: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No save follows that would prune again: the job has ended."""
    shelve(root, 1, 2)
    path = folder(root, 1)

    def dies(self: Folder, name: str) -> None:
        raise StorageUnreachable(f"{self} does not answer")

    with monkeypatch.context() as dying:
        dying.setattr(type(root), "remove", dies)
        with pytest.raises(StorageUnreachable):
            prune(root, 1, published(folder(root, 2)))
    assert complete(root) == [folder(root, 2), path]
    with pytest.raises(OSError, match="in a day if that save has died"):
        pin(path)
    assert complete(root) == [folder(root, 2), path] and not path.has(PINNED)
    later = time.time() + retention.DIED_S + 60
    monkeypatch.setattr(retention, "time", SimpleNamespace(time=lambda: later))
    assert pin(path).step == 1
    assert prune(root, 1, published(folder(root, 2))) == (1, 2)
    unpin(path)
    assert prune(root, 1, published(folder(root, 2))) == (2,)
    assert steps(root) == [2]


def test_a_pin_of_what_is_removed_before_it_is_written_is_taken_back(
    root: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelve(root, 1, 2)
    usual, path = type(root).publish, folder(root, 1)

    def publish(self: Folder, name: str, content: bytes, **how: bool) -> None:
        if name == PINNED:
            assert prune(root, 1, published(folder(root, 2))) == (2,)
        usual(self, name, content, **how)

    monkeypatch.setattr(type(root), "publish", publish)
    with pytest.raises(CheckpointRemoved):
        pin(path)
    assert steps(root) == [2]


@pytest.mark.parametrize("first", ["pin", "prune", "look"])
def test_of_a_pin_and_a_removal_at_the_same_time_one_gives_way(
    root: Folder, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The other one begins and ends where the first one has written its file and looks for the other's.

    `look`: the pin is made after the removal has looked for pins, and before it writes its note.
    """
    shelve(root, 1, 2)
    began: list[str] = []
    has, publish, path = type(root).has, type(root).publish, folder(root, 1)

    def noted_has(self: Folder, name: str) -> bool:
        if self == path and not began and first == "pin" and name == "removing":
            began.append(first)
            assert prune(root, 1, published(folder(root, 2))) == (1, 2)
        if self == path and not began and first == "prune" and name == PINNED and has(self, "removing"):
            began.append(first)
            with pytest.raises(OSError, match="looking"):
                pin(path)
        return has(self, name)

    def noted_publish(self: Folder, name: str, content: bytes, **how: bool) -> None:
        if self == path and not began and first == "look" and name == "removing":
            began.append(first)
            assert pin(path).step == 1
        publish(self, name, content, **how)

    monkeypatch.setattr(type(root), "has", noted_has)
    monkeypatch.setattr(type(root), "publish", noted_publish)
    if first == "pin":
        assert pin(path).step == 1
    else:
        assert prune(root, 1, published(folder(root, 2))) == ((2,) if first == "prune" else (1, 2))
    assert began and steps(root) == ([2] if first == "prune" else [1, 2])
    assert not has(path, "removing")


def test_room_is_made_of_what_killed_and_failed_saves_have_left(root: Folder) -> None:
    shelve(root, 100, 200)
    pin(folder(root, 100))
    for step, name in ((300, "rank-0-old"), (400, "rank-0-old"), (400, "rank-1-new"), (500, "rank-0-old")):
        folder(root, step).write(name, memoryview(b"weights"))
    assert make_room(root, 400, "new")
    assert steps(root) == [100, 200, 400, 500] and list(folder(root, 400).files()) == ["rank-1-new"]
    assert not make_room(root, 400, "new"), "there is nothing left to remove, and another try would fail as well"
    assert complete(root) == [folder(root, 200), folder(root, 100)] and folder(root, 100).has(PINNED)


def test_room_is_not_made_of_a_step_that_ranks_of_the_run_still_write(root: Folder) -> None:
    for step, name in ((300, "rank-0-new"), (300, "rank-0-old"), (200, "rank-0-new")):
        folder(root, step).write(name, memoryview(b"weights"))
    assert make_room(root, 400, "new", lambda step: step < 300)
    assert steps(root) == [300] and list(folder(root, 300).files()) == ["rank-0-new"]


@pytest.mark.parametrize("damaged", [False, True])
def test_room_is_made_of_nothing_that_a_manifest_names_or_may_name(root: Folder, damaged: bool) -> None:
    shelve(root, 300, 400)
    path = folder(root, 400)
    note_corrupt(path)
    for name in ("rank-00001-old", f"{MANIFEST}.0badcafe.partial"):  # another save publishes its manifest now
        path.write(name, memoryview(b"weights"))
    if damaged:
        path.publish(MANIFEST, b"{")
    before = set(path.files())
    assert make_room(root, 400, "new") is not damaged
    assert set(path.files()) == before - (set() if damaged else {"rank-00001-old"}) and steps(root) == [300, 400]


def test_storage_that_fails_while_room_is_made_is_no_error_of_its_own(
    root: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Folder) -> list[str]:
        raise StorageUnreachable(f"{self} does not answer")

    monkeypatch.setattr(type(root), "folders", away)
    assert not make_room(root, 400, "new")
