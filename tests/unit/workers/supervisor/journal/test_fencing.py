from typing import TYPE_CHECKING

from shardyard.workers.supervisor.journal import fencing, kv_store

if TYPE_CHECKING:
    from .conftest import Store

GANG = "shardyard-a-1"


def test_the_newest_epoch_is_current_and_no_other(store: "Store") -> None:
    assert [fencing.acquire_epoch(GANG) for _ in range(3)] == [1, 2, 3]
    assert [fencing.is_current(GANG, epoch) for epoch in (1, 2, 3, 4)] == [False, False, True, False]
    kv_store.delete_all(f"{GANG}/")
    assert not fencing.is_current(GANG, 3), "the gang is closed"


def test_whether_an_epoch_is_current_is_asked_without_a_list_of_keys(store: "Store") -> None:
    """Each write of a journal asks it, and Ray looks at all keys of the cluster for a list."""
    epoch = fencing.acquire_epoch(GANG)
    store.calls.clear()
    assert fencing.is_current(GANG, epoch)
    assert store.calls == {"exists": 2}


def test_no_epoch_is_skipped_so_that_each_is_superseded_by_the_next(store: "Store") -> None:
    """A supervisor of an older layout wrote below epochs that it acquired elsewhere."""
    first = fencing.acquire_epoch(GANG)
    kv_store.put(f"{GANG}/{first + 3:0{fencing.WIDTH}d}/state", b"")
    second = fencing.acquire_epoch(GANG)
    assert (first, second) == (1, 5)
    assert fencing.is_current(GANG, second) and not fencing.is_current(GANG, first)
    assert fencing.acquire_epoch(GANG) == 6 and not fencing.is_current(GANG, second)
