"""Connects this terminal with one at a rank: keys go there as they are pressed, and what is printed there is shown here.

Ctrl-] detaches. The terminal's settings are restored however the connection ends, also by SIGTERM.
"""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from ....service.schemas.problem import FieldError
from ....workers.first_readable import first_readable
from ...client.streams import RankStream, Streams
from ...client.transport import ApiError
from ..end_signals import EndSignals

#: The key that detaches: Ctrl-], as of telnet.
DETACH: Final = b"\x1d"
#: Leaves the alternate screen, shows the cursor, and ends bracketed paste: what a full-screen program would have done at its end.
_RESTORE: Final = b"\x1b[?1049l\x1b[?25h\x1b[?2004l\r\n"


@dataclass(frozen=True)
class Ended:
    """How a connection ended. `status`: exit status of the program; None if it continues, or ended with the connection."""

    how: str
    status: int | None = None


def refuse_unless_terminal() -> None:
    """Raises ApiError where the command's input or output is no terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        remedy = FieldError(message="Standard input or output is no terminal.", remedy="Run it in a terminal.")
        raise ApiError("no_terminal", "This command connects a terminal.", None, [remedy])


def connect(url: str | None, job: str, rank: int, command: list[str], *, keep: bool) -> Ended:
    """Show a terminal of a rank until its program ends or the user detaches. `keep`: it outlives this. Raises ApiError."""
    refuse_unless_terminal()

    async def connected() -> Ended:
        size = {**_size(), "term": os.environ.get("TERM") or "xterm"}
        async with Streams(url) as streams, streams.terminal(job, rank, command, keep=keep, size=size) as stream:
            return await _show(stream)

    with EndSignals():
        return asyncio.run(connected())


async def _show(stream: RankStream) -> Ended:
    loop = asyncio.get_running_loop()
    resizing: set[asyncio.Task[None]] = set()

    def resized() -> None:
        task = loop.create_task(stream.control(**_size()))
        resizing.add(task)
        task.add_done_callback(resizing.discard)

    ended = Ended("lost")
    try:
        with _raw(sys.stdin.fileno()):
            tasks = {loop.create_task(_print(stream)), loop.create_task(_type(stream))}
            loop.add_signal_handler(signal.SIGWINCH, resized)
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                ended = next(iter(done)).result()
            finally:
                loop.remove_signal_handler(signal.SIGWINCH)
                for task in (*tasks, *resizing):
                    task.cancel()
                await asyncio.gather(*tasks, *resizing, return_exceptions=True)
    finally:
        if ended.status is None:
            _write(_RESTORE)
    return ended


async def _print(stream: RankStream) -> Ended:
    """Show what is printed there until its end."""
    while (message := await stream.receive()) is not None:
        if isinstance(message, bytes):
            await asyncio.to_thread(_write, message)
        elif "exit" in message:
            return Ended("exited", int(message["exit"]))
        elif "replaced" in message:
            return Ended("replaced")
    return Ended("lost")


async def _type(stream: RankStream) -> Ended:
    """Send what is typed until the user detaches."""
    keyboard = sys.stdin.fileno()
    while True:
        await first_readable([keyboard])
        typed = os.read(keyboard, 4096)
        before, detached, _ = typed.partition(DETACH)
        if before:
            await stream.send(before)
        if detached or not typed:
            return Ended("detached")


def _write(content: bytes) -> None:
    while content:
        content = content[os.write(sys.stdout.fileno(), content) :]


def _size() -> dict[str, Any]:
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return {"rows": min(max(rows, 1), 1000), "columns": min(max(columns, 1), 1000)}


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """A terminal without line editing, echo and signals of keys: the other side has them."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed meanwhile is for the other side, too
    try:
        yield
    finally:
        with suppress(termios.error):  # it was closed
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
