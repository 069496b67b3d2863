"""Waits until all ranks are ready for a collective, without its time limit: what they do before it may take some of them hours.

A rank that waits here waits for another rank, though no collective is on record: `supervisor/policies/examination.py` knows it by this
file's frame.
"""

import time
from collections.abc import Callable
from typing import Final

import torch.distributed as dist

#: Seconds for the slowest rank, which may read a large corpus on its own node. One without progress is a hang, and ends the gang sooner.
READY_S: Final = 7 * 86_400.0
#: Seconds between two looks: the first, and the longest.
_LOOK_S: Final = (0.005, 0.25)


def wait_for_all(what: str, beat: Callable[[], None] = lambda: None, timeout_s: float = READY_S) -> None:
    """Return once all ranks of the world have called it equally often for `what`. Call it before a collective. Collective.

    `beat` is called several times a second. After `timeout_s` it returns, too, and the limit of the collective decides. Raises the
    store's RuntimeError if rank 0 is gone.
    """
    world = dist.group.WORLD
    assert world is not None, "the process group is not formed"
    store, key, size = world.get_group_store(), f"ready: {what}", dist.get_world_size()
    calls = -(-store.add(key, 1) // size)  # of each rank, with this one
    deadline, pause_s = time.monotonic() + timeout_s, _LOOK_S[0]
    while store.add(key, 0) < calls * size and time.monotonic() < deadline:
        beat()
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, _LOOK_S[1])
