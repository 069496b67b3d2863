"""Waits for the first of several descriptors that can be read. Needs only the standard library."""

import asyncio
from collections.abc import Sequence


async def first_readable(descriptors: Sequence[int]) -> int:
    """The descriptor that can be read first."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[int] = loop.create_future()

    def ready(descriptor: int) -> None:
        if not found.done():
            found.set_result(descriptor)

    for descriptor in descriptors:
        loop.add_reader(descriptor, ready, descriptor)
    try:
        return await found
    finally:
        for descriptor in descriptors:
            loop.remove_reader(descriptor)
