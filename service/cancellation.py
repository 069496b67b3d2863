"""A cancellation that was lost on its way: a library answers in its place, or the error of a connection that it broke comes instead."""

import asyncio


def check_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled: in loops that repeat requests, which would not end otherwise."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
