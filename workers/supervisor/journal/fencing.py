"""Fencing epochs for supervisors. Only the newest epoch may act; a partitioned predecessor may still be running.

Rules that it keeps: each supervisor acquires an epoch of its own, higher than all before, and acquires it before it reads its
predecessor's journal. So a successor reads every write after which the writer's epoch was still the newest. Any other write
does not count (fencing; Burrows, The Chubby lock service, 2006). No epoch is skipped: one is the newest if the next does not exist.
"""

import os
from typing import Final, NoReturn

from . import kv_store

#: Digits: keys sort in the order of their epochs.
WIDTH: Final = 9


def acquire_epoch(gang: str) -> int:
    """A number that is higher than that of every predecessor, also of one that wrote its epochs elsewhere."""
    epoch, written = max(_epochs(gang), default=0) + 1, max(_written(gang), default=0)
    # An epoch that only has something written below it is acquired, too.
    while not kv_store.put_new(_key(gang, epoch)) or epoch <= written:
        epoch += 1
    return epoch


def is_current(gang: str, epoch: int) -> bool:
    """Whether no later supervisor has acquired an epoch; false, too, when the gang is closed."""
    return not kv_store.exists(_key(gang, epoch + 1)) and kv_store.exists(_key(gang, epoch))


def exit_process() -> NoReturn:
    """End this process. Not by way of Ray, which takes the successor for this actor."""
    os._exit(0)


def _epochs(gang: str) -> list[int]:
    return [int(key.rpartition("/")[2]) for key in kv_store.keys(f"{gang}/epoch/")]


def _written(gang: str) -> list[int]:
    """The epochs below which something is written."""
    return [int(key.removeprefix(f"{gang}/").partition("/")[0]) for key in kv_store.keys(f"{gang}/0")]


def _key(gang: str, epoch: int) -> str:
    return f"{gang}/epoch/{epoch:0{WIDTH}d}"
