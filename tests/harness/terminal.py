"""A command on a real terminal: what it shows, and keys that are pressed."""

import codecs
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from .patience import PATIENCE_S

_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0-9A-B]?")


class Terminal:
    """A pseudo-terminal with one command on it. `text` is all that it showed, without what steers a terminal."""

    def __init__(self, command: list[str], environment: dict[str, str], size: tuple[int, int] = (40, 140)) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.raw = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # a read may end inside a character
        settings = {**environment, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES"):  # the terminal's own size counts
            settings.pop(name, None)
        try:
            self.process = subprocess.Popen(
                ["env", "--default-signal=INT", *command],
                stdin=slave, stdout=slave, stderr=slave, env=settings, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._master)

    @property
    def text(self) -> str:
        return _STEERING.sub("", self.raw)

    @property
    def settings(self) -> list[object]:
        """Such as whether it edits lines and echoes keys."""
        return [*termios.tcgetattr(self._master)]

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def shows(self, *expected: str) -> None:
        """Wait until all of it was shown."""
        for _ in self._reading():
            if all(part in self.text for part in expected):
                return
        raise AssertionError(f"{expected} did not all come; shown was:\n{self.text[-4000:]}")

    def ends(self) -> int:
        """Wait for the command's end; its exit code."""
        for _ in self._reading():
            if self.process.poll() is not None:
                while self._read(0):
                    pass
                return self.process.returncode
        raise AssertionError(f"it did not end; shown was:\n{self.text[-4000:]}")

    def _reading(self) -> Iterator[None]:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            yield
            self._read(0.05)
        yield

    def _read(self, wait_s: float) -> bool:
        """Read for at most this many seconds; returns whether anything came."""
        if not select.select([self._master], [], [], wait_s)[0]:
            return False
        try:
            received = os.read(self._master, 65536)
        except OSError:  # the command has closed its side
            return False
        self.raw += self._decode(received)
        return bool(received)
