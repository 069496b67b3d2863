"""The fork server: one warm, single-threaded process per node and environment that forks trainers in milliseconds.

Rules that it keeps:

- It imports torch once and never touches a device: a process that has initialised CUDA must not fork. It stays
  single-threaded.
- It listens on a UNIX socket in a private folder (0700). The first client starts it (`client.py`).
- It has an owner, a process of the node (the raylet, or the control plane that warms it up before there is one), and
  ends with it. It also ends when it is idle and the code that it imported has changed on disk; a changed environment
  or interpreter is another folder.
- A trainer leads a session of its own. It ends with the connection that asked for it, and with the server; its whole
  process group is killed before its process id is released, so that no process of it remains and no other process is
  killed.
"""

import contextlib
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from ..parent_death import adopt_orphans, die_with_parent, kill_orphans
from .client import fingerprint
from .protocol import Request, receive, reply

#: Seconds for the ends of killed processes that trainers have left, for which the node's other trainers wait.
ORPHANS_S: Final = 1.0
#: Seconds after which a client is looked for again that found no free descriptor.
_NO_ROOM_S: Final = 0.1


@dataclass
class Child:
    pid: int
    connection: socket.socket
    disconnected: bool = field(default=False)


class Server:
    """Accepts requests, forks trainers, reaps them, and ends with its owner."""

    def __init__(self, listener: socket.socket, owner: int, folder: Path) -> None:
        self.listener = listener
        self.folder = folder
        self.code = fingerprint()
        self.owner = os.pidfd_open(owner)
        self.children: dict[int, Child] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        self.selector.register(self.owner, selectors.EVENT_READ, self._end)
        self.woken, wake = socket.socketpair()
        self.woken.setblocking(False)
        wake.setblocking(False)
        adopt_orphans()
        self._wake = wake  # kept open; the interpreter writes to it when a child ends
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self.selector.register(self.woken, selectors.EVENT_READ, self._reap)

    def serve(self) -> NoReturn:
        looked = time.monotonic()
        while True:
            for key, _ in self.selector.select(timeout=5.0):
                key.data(key.fileobj)
            if not self.children and time.monotonic() - looked > 5.0:
                looked = time.monotonic()
                if self.code != fingerprint():
                    self._end(None)

    def _accept(self, _: Any) -> None:
        try:
            connection, _address = self.listener.accept()
        except OSError:  # no descriptor is free: the client waits until one is
            traceback.print_exc()
            time.sleep(_NO_ROOM_S)
            return
        connection.settimeout(5.0)
        self.selector.register(connection, selectors.EVENT_READ, self._receive_request)

    def _receive_request(self, connection: socket.socket) -> None:
        """Receive the one request of a connection. It may come late, which delays no other client."""
        self.selector.unregister(connection)
        fds: list[int] = []
        try:
            message, fds = receive(connection)
            if "owner" in message:
                self._change_owner(int(message["owner"]))
                connection.close()
            else:
                self._fork(Request(**message), connection, fds)
        except ConnectionError:
            connection.close()
        except (OSError, ValueError, TypeError):
            traceback.print_exc()
            connection.close()
        finally:
            for fd in fds:
                os.close(fd)

    def _change_owner(self, owner: int) -> None:
        new = os.pidfd_open(owner)
        self.selector.unregister(self.owner)
        os.close(self.owner)
        self.owner = new
        self.selector.register(self.owner, selectors.EVENT_READ, self._end)

    def _fork(self, order: Request, connection: socket.socket, fds: list[int]) -> None:
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # a limit of processes, or no memory
            with contextlib.suppress(OSError):
                reply(connection, {"failed": error.strerror or str(error)})
            raise
        if pid == 0:
            connection.close()
            self._become_trainer(order, fds, server)
        child = Child(pid, connection)
        self.children[pid] = child
        self._reply(child, {"pid": pid})
        self.selector.register(connection, selectors.EVENT_READ, lambda _: self._forward_signals(child))

    def _become_trainer(self, order: Request, fds: list[int], server: int) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # The shell that started the server had both ignored, as for any background job.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)
            os.setsid()
            die_with_parent(server)
            adopt_orphans()  # while it lives; then the server does
            self._close_sockets()
            control, given = _take_descriptors(fds, order.segments)
            os.environ.clear()
            os.environ.update(order.env)
            with contextlib.suppress(OSError):
                os.chdir(order.cwd)
            from ..trainer.main import main

            status = main(control, given, order.entry)
        except BaseException:  # noqa: BLE001  (top of a forked process)
            traceback.print_exc()
        finally:
            with contextlib.suppress(
                BaseException
            ):  # end of a forked process: a user's code may have replaced the streams
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _close_sockets(self) -> None:
        """Close the server's sockets in a trainer: clients wait for their end of file."""
        for key in list(self.selector.get_map().values()):
            os.close(key.fd)
        self.selector.close()
        self._wake.close()

    def _forward_signals(self, child: Child) -> None:
        """Forward each byte as a signal to the trainer. When the connection ends, kill the trainer."""
        if self.children.get(child.pid) is not child:
            return  # it was reaped just now, with what was sent to it
        try:
            numbers = child.connection.recv(64)
        except OSError:
            numbers = b""
        if not numbers:
            self.selector.unregister(child.connection)
            child.disconnected = True
            child.connection.close()
        for number in numbers or [signal.SIGKILL]:
            _send_signal(child.pid, number)

    def _reap(self, _: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.woken.recv(4096):
                pass
        for child in list(self.children.values()):
            # Peek before reaping: while the zombie holds its process id, the id of its group cannot be reused, so killing it is safe.
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            _, status = os.waitpid(child.pid, 0)
            del self.children[child.pid]
            self._reply(child, {"exit": os.waitstatus_to_exitcode(status)})
            if not child.disconnected:
                self.selector.unregister(child.connection)
                child.connection.close()
        kill_orphans(self.children, ORPHANS_S)  # the end of one that takes longer wakes this server again

    def _reply(self, child: Child, message: dict[str, Any]) -> None:
        if not child.disconnected:
            with contextlib.suppress(OSError):
                reply(child.connection, message)

    def _end(self, _: Any) -> NoReturn:
        """Kill all trainers, remove the folder, which is useless without a server, and exit."""
        for child in self.children.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()  # succeeds for the last server of the node
        os._exit(0)


def _send_signal(pid: int, number: int) -> None:
    """Send a signal to a trainer's process group; before it has one, to the trainer, whose id is its own until it is reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


def _take_descriptors(fds: list[int], segments: int) -> tuple[socket.socket, dict[str, Any]]:
    control, stdout, stderr, notifier, *more = fds
    memory, listening = more[:segments], more[segments:]
    with open(os.devnull, "rb") as null:  # noqa: PTH123
        os.dup2(null.fileno(), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    given = {"notifier": notifier, "segments": tuple(memory), "master_fd": listening[0] if listening else None}
    return socket.socket(fileno=control), given
