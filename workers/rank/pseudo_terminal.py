"""A program on a pseudo-terminal of this node, which a client shows and which may outlive its client. Needs only the standard library.

Rules that it keeps: the program does not wait for a client that has gone, and for a machine that has vanished at most `PEER_S`; of what it
printed the newest `MOST_FRAME` bytes are kept, for the client that comes next; a program whose terminal is not kept leaves no process of
its session.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import signal
import struct
import termios
import time
from collections.abc import Sequence
from typing import Any, Final

from .. import process_stat
from ..first_readable import first_readable
from ..messages.stream_frames import CONTROL, DATA, MOST_FRAME, Stream

#: Seconds before input is offered again to a program that takes none, and for which it is.
RETRY_S: Final = 0.02
INPUT_S: Final = 10.0
#: Seconds that a program has to end after SIGHUP, and what it has left in its session after it.
HANGUP_S: Final = 2.0
#: Seconds between two looks at a session.
POLL_S: Final = 0.1
#: Reads of what a program has printed before its end.
LAST_READS: Final = 64
#: Rows and columns of the largest terminal.
MOST_CELLS: Final = 1000


class PseudoTerminal:
    """One program on a terminal of its own, and the client that shows it. Needs a running event loop in a process of one thread."""

    def __init__(self, command: Sequence[str], rows: int, columns: int, term: str, *, kept: bool) -> None:
        """Start the command. `term`: what the client's terminal is, as the variable TERM names it.

        `kept`: whether what the program leaves in its session continues after its end.
        """
        self._descriptor, terminal = os.openpty()
        set_size(self._descriptor, rows, columns)  # before the program can ask for it
        self._pid = os.fork()
        if self._pid == 0:
            become(command, term, terminal)
        os.close(terminal)
        os.set_blocking(self._descriptor, False)
        self.ended, self._kept = False, kept
        self._recent = b""
        self._client: Stream | None = None
        self._takes_input = True
        self._passing = asyncio.get_running_loop().create_task(self._pass_on())

    def attach(self, stream: Stream) -> None:
        """Show the terminal to this client, and no longer to the one before, which gets `{"replaced": true}`."""
        if self._client is not None:
            self._client.put(CONTROL, b'{"replaced": true}')
            self._client.close()
        stream.put(CONTROL, b'{"opened": true}')
        stream.put(DATA, self._recent)
        self._client = stream

    def detach(self, stream: Stream) -> None:
        if self._client is stream:
            self._client = None
        stream.abort()  # so that what waits for it to take more continues

    async def write(self, content: bytes) -> None:
        """Give the program input, as fast as it takes it. Once it has taken none for `INPUT_S`, what it does not take at once is dropped.

        Otherwise the end of a client that has pasted much would not be noticed.
        """
        until = time.monotonic() + INPUT_S
        while content and not self.ended:
            try:
                content = content[os.write(self._descriptor, content) :]
                self._takes_input, until = True, time.monotonic() + INPUT_S
            except BlockingIOError:
                self._takes_input = self._takes_input and time.monotonic() < until
                if not self._takes_input:
                    return
                await asyncio.sleep(RETRY_S)
            except OSError:  # the program has closed the terminal
                return

    def resize(self, rows: int, columns: int) -> None:
        """Set the size in characters, of which the kernel informs the program (SIGWINCH)."""
        if not self.ended:
            set_size(self._descriptor, rows, columns)

    async def hang_up(self) -> None:
        """End the program and all processes of its session, as when a modem hung up."""
        if self.ended:
            return
        for number in (signal.SIGHUP, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)
        await asyncio.wait({self._passing}, timeout=HANGUP_S)
        if not self.ended:
            self._kill_session()
            await self._passing

    async def _end_session(self) -> None:
        """Kill what the program has left in its session, after `HANGUP_S`."""
        until = time.monotonic() + HANGUP_S
        while of_session(self._pid) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        self._kill_session()

    def _kill_session(self) -> None:
        """The program was not waited for, so no other session has its id. A process of another user stays."""
        for pid in of_session(self._pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def _pass_on(self) -> None:
        """Send what the program prints to the client until the program has ended, and then `{"exit": status}`."""
        ended = os.pidfd_open(self._pid)
        sources = [ended, self._descriptor]
        while await first_readable(sources) != ended:
            printed = self._read()
            if printed is None:  # it has closed the terminal, and continues
                sources = [ended]
            else:
                await self._show(printed)
        for _ in range(LAST_READS):
            if not (printed := self._read()):
                break
            await self._show(printed)
        if not self._kept:
            await self._end_session()
        _, status = os.waitpid(self._pid, 0)  # noqa: ASYNC222 - it has ended
        self.ended = True
        os.close(self._descriptor)
        os.close(ended)
        code = os.waitstatus_to_exitcode(status)
        if self._client is not None:
            self._client.put(CONTROL, json.dumps({"exit": code if code >= 0 else 128 - code}).encode())
            self._client.close()

    def _read(self) -> bytes | None:
        """What can be read now; None where the program has closed the terminal."""
        try:
            return os.read(self._descriptor, MOST_FRAME)
        except BlockingIOError:
            return b""
        except OSError:
            return None

    async def _show(self, printed: bytes) -> None:
        self._recent = (self._recent + printed)[-MOST_FRAME:]
        client = self._client
        if client is not None:
            try:
                await client.send(DATA, printed)
            except OSError:
                self.detach(client)


def set_size(descriptor: int, rows: int, columns: int) -> None:
    """Set the size of a terminal in characters."""
    size = [min(max(number, 1), MOST_CELLS) for number in (rows, columns)]
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


def become(command: Sequence[str], term: str, terminal: int) -> None:
    """Run the command in the place of this process, which was just forked, on the terminal with this descriptor."""
    try:
        os.login_tty(terminal)
        # Python ignores some, and so does what was started with nohup, or in the background of a script, as Ray may be.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        known = re.fullmatch(r"[\w.+-]{1,64}", term)
        os.execvpe(command[0], list(command), {**os.environ, "TERM": term if known else "xterm"})  # noqa: S606
    except OSError as error:
        os.write(2, f"shardyard: {command[0]!r} cannot be started: {error.strerror}\r\n".encode())
    finally:
        os._exit(127)  # the exit status of a shell for a command that is not there


def of_session(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    return [pid for pid, stat in process_stat.read_all().items() if stat.session == leader and stat.state != "Z"]


def shell() -> str:
    """The user's shell, or one that is there."""
    wanted = (os.environ.get("SHELL", ""), "/bin/bash")
    return next((path for path in wanted if path and os.access(path, os.X_OK)), "/bin/sh")


def size_of(message: dict[str, Any]) -> tuple[int, int]:
    """The rows and columns that a client's message names. Raises TypeError, ValueError, and OverflowError for infinity."""
    return int(message.get("rows", 24)), int(message.get("columns", 80))
