"""Calls of the Ray cluster that a gang cannot do without: they wait for a cluster that does not answer."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: Seconds until a cluster that does not answer is asked again.
AGAIN_S: Final = 1.0


async def until_answered(work: Callable[[], T]) -> T:
    """What `work` returns in a thread; repeated while the cluster does not answer."""
    from ray.exceptions import RayError

    while True:
        try:
            return await asyncio.to_thread(work)
        except RayError:
            await asyncio.sleep(AGAIN_S)
