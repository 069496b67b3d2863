"""Profiles that a trainer or a program records of itself. Its actor sends the order over the control socket, and gets the answer there."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from ..messages.profile_request import Profile

#: Seconds beyond those of the profile: for the step that it ends with, and for writing it.
PATIENCE_S: Final = 180.0
#: Seconds for an answer that a trainer wrote just before it ended, and that is not read yet.
LAST_ANSWER_S: Final = 2.0


class NotRecorded(Exception):
    """There is no recording. The message says why."""


class Recordings:
    """The recordings of one trainer. `send` sends it a message; `gone` is set when it has ended."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]], gone: asyncio.Event) -> None:
        self._send, self._gone = send, gone
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def record(self, order: Profile, path: Path) -> int:
        """Have the trainer write a recording to `path`. Returns the number of its whole steps. Raises NotRecorded."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        gone = asyncio.create_task(self._gone.wait())
        self._waiting[order.id] = answer
        try:
            wanted = {"id": order.id, "kind": order.kind, "seconds": order.seconds, "path": str(path)}
            await self._send({"profile": wanted})
            limit_s = order.seconds + PATIENCE_S
            ends: set[asyncio.Future[Any]] = {answer, gone}
            await asyncio.wait(ends, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not answer.done():
                await asyncio.wait([answer], timeout=LAST_ANSWER_S)
            if not answer.done():
                why = (
                    "its process ended"
                    if gone.done()
                    else f"no step ended within {limit_s:g} s; its stacks say where it is"
                )
                raise NotRecorded(why)
            return _steps(answer.result())
        finally:
            gone.cancel()
            del self._waiting[order.id]

    def answer(self, data: dict[str, Any]) -> None:
        """The trainer has written a recording, or says why not. One that is no longer awaited is ignored."""
        waiting = self._waiting.get(data["id"])
        if waiting is not None and not waiting.done():
            waiting.set_result(data)


def _steps(data: dict[str, Any]) -> int:
    if data["failed"] is not None:
        raise NotRecorded(data["failed"])
    steps: int = data["steps"]
    return steps
