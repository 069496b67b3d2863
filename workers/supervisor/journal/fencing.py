"""Which of a gang's supervisors is in office: the newest. One that was only cut off from the cluster lives on beside its successor.

Rules that it keeps: each takes a number of its own, higher than all before, and takes it before it reads what they wrote; so a write that
finds its own number to be the highest, after it was made, is known to every successor, and one that does not counts for nothing (fencing;
Burrows, The Chubby lock service, 2006).
"""

import os
from typing import Final, NoReturn

from ..ranks.placement_group import NAMESPACE

#: Digits: keys are in the order of their numbers.
WIDTH: Final = 9


def take(gang: str) -> int:
    """A number that is higher than all predecessors'."""
    from ray.experimental import internal_kv

    number = max(_numbers(gang), default=0) + 1
    while internal_kv._internal_kv_put(_key(gang, number), b"", overwrite=False, namespace=NAMESPACE):
        number += 1  # somebody had it already
    return number


def holds(gang: str, number: int) -> bool:
    """Whether nobody has taken the office since; false, too, when the gang is closed."""
    return max(_numbers(gang), default=0) == number


def leave() -> NoReturn:
    """End this process. Not by way of Ray, for which this actor is its successor."""
    os._exit(0)


def _numbers(gang: str) -> list[int]:
    from ray.experimental import internal_kv

    keys = internal_kv._internal_kv_list(f"{gang}/office/", namespace=NAMESPACE)
    return [int(bytes(key).rpartition(b"/")[2]) for key in keys]


def _key(gang: str, number: int) -> str:
    return f"{gang}/office/{number:0{WIDTH}d}"
