"""The fork server: one warm, single-threaded process per node and environment that forks trainers in milliseconds.

Rules that it keeps:

- It imports torch once and never touches a device: a process that has initialised CUDA must not fork. It stays
  single-threaded.
- It listens on a UNIX socket in a private folder (0700). Whoever needs it first starts it, under a file lock.
- It has an owner, a process of the node (the raylet, or the control plane that warms it up before there is one), and
  ends with it. It also ends when it is idle and the code that it imported has changed on disk; a changed environment
  or interpreter is another folder.
- A trainer leads a session of its own. It ends with the connection that asked for it, and with the server; its whole
  process group is killed before its process id is given back, so that nothing of it stays and nobody else is hit.
"""

import array
import contextlib
import ctypes
import fcntl
import gc
import hashlib
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

#: What a trainer needs; importing it is nearly all of a trainer's start-up time.
PRELOAD: Final = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor",
    "torch.distributed.tensor.parallel",
)
#: Variables that change what an import does; another value is another server.
IMPORT_VARIABLES: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
#: One thread, or the process could not be forked safely (OpenBLAS starts its pool at import).
ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: Asking NVML, not CUDA, whether there is a device, should an import ask.
NO_CUDA: Final = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
#: The package of all workers, whatever its parents are called.
WORKERS: Final = str(__package__).removesuffix(".forkserver")
PACKAGE: Final = Path(__file__).resolve().parents[2]
SOCKET: Final = "s"
MAX_REQUEST: Final = 8 << 20
MAX_FDS: Final = 8
PR_SET_PDEATHSIG: Final = 1


class ForkError(RuntimeError):
    """The fork server did not start a trainer. Look into its log, `fork.log` beside its socket."""

    code = "fork_failed"


@dataclass(frozen=True)
class Request:
    """A trainer to fork. Beside it travel the descriptors of its control socket, stdout, stderr, bell, of its snapshot
    memory (`slots` of them) and, for rank 0, of a listening socket.
    """

    env: dict[str, str]  # the whole environment of the trainer
    cwd: str = "/"
    entry: str = ""  # `module:function` that trains; empty: this package's own loop
    slots: int = 0


@dataclass
class Child:
    pid: int
    connection: socket.socket
    told: bool = field(default=False)


def fingerprint() -> str:
    """Of the code that a server holds in memory: names, sizes and times of the package's files that trainers import."""
    digest = hashlib.sha256()
    for folder in ("strategies", "workers"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            with contextlib.suppress(FileNotFoundError):
                facts = path.stat()
                digest.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def folder_name(env: dict[str, str]) -> str:
    """Of the folder of the server for this interpreter, package, code and environment."""
    seen = {name: env.get(name, "") for name in IMPORT_VARIABLES}
    parts = [
        sys.prefix,
        os.path.realpath(sys.executable),
        sys.version,
        str(PACKAGE),
        fingerprint(),
        json.dumps(seen, sort_keys=True),
    ]
    return "fork-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


# The client's side: rank actors and the control plane. Everything here is quick; nobody waits for the import.


def connect(root: Path, owner: int, env: dict[str, str]) -> socket.socket:
    """A connection to the node's server below `root` for environment `env`.

    Starts one, to live as long as process `owner`, if none runs. Raises OSError, ForkError.
    """
    folder = root / folder_name(env)
    _make_private(root)
    _make_private(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _dial(folder) or _start(folder, owner, env)


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) != 0o700 or not stat.S_ISDIR(facts.st_mode):
        raise ForkError(f"{folder} is not a private folder of this user; remove it")


def _dial(folder: Path) -> socket.socket | None:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(5.0)
        client.connect(str(folder / SOCKET))
    except (FileNotFoundError, ConnectionRefusedError):
        client.close()
        return None
    return client


def _start(folder: Path, owner: int, env: dict[str, str]) -> socket.socket:
    """Bind first, then start the server on the bound socket: who connects meanwhile waits in its backlog."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, (folder / "fork.log").open("ab") as log:
        (folder / SOCKET).unlink(missing_ok=True)
        listener.bind(str(folder / SOCKET))
        listener.listen(128)
        own = {name: value for name, value in env.items() if not name.startswith("RAY_")} | ONE_THREAD | NO_CUDA
        arguments = [sys.executable, "-P", "-m", __name__, str(listener.fileno()), str(owner), str(folder)]
        # The shell ends at once, so that the server is nobody's child: Ray kills the children of an actor that exits.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=own,
            cwd="/",
            pass_fds=(listener.fileno(),),
            start_new_session=True,
            timeout=30,
            check=True,
        )
        client = _dial(folder)
    if client is None:
        raise ForkError(f"no fork server answers in {folder}")
    return client


def adopt(connection: socket.socket, owner: int) -> None:
    """Give the server another owner; the connection is of no other use."""
    _send(connection, {"owner": owner})


def request(connection: socket.socket, order: Request, fds: list[int]) -> None:
    """Ask for a trainer. Replies come as lines of JSON: `{"pid": n}`, later `{"exit": status}` (negative: a signal)."""
    _send(connection, asdict(order), fds)


def kill(connection: socket.socket, number: int = signal.SIGKILL) -> None:
    """Send a signal to the trainer's process group, as long as it lives."""
    connection.sendall(bytes([number]))


def _send(connection: socket.socket, message: dict[str, Any], fds: list[int] | None = None) -> None:
    body = json.dumps(message).encode()
    head = struct.pack("!I", len(body))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    connection.sendmsg([head], rights)
    connection.sendall(body)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, fds, _, _ = socket.recv_fds(connection, 4, MAX_FDS)
    if len(head) != 4:
        raise ConnectionError("no request, only a look whether somebody listens")
    (size,) = struct.unpack("!I", head)
    if size > MAX_REQUEST:
        raise ConnectionError(f"a request of {size} bytes")
    body = bytearray()
    while len(body) < size:
        part = connection.recv(size - len(body))
        if not part:
            raise ConnectionError("half a request")
        body += part
    message: dict[str, Any] = json.loads(bytes(body))
    return message, fds


# The server's side.


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
        connection, _address = self.listener.accept()
        connection.settimeout(5.0)
        self.selector.register(connection, selectors.EVENT_READ, self._hear)

    def _hear(self, connection: socket.socket) -> None:
        """The one request of a connection, which may come late: nobody else waits for it."""
        self.selector.unregister(connection)
        fds: list[int] = []
        try:
            message, fds = _receive(connection)
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
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._become_trainer(order, fds, server)
        child = Child(pid, connection)
        self.children[pid] = child
        self._tell(child, {"pid": pid})
        self.selector.register(connection, selectors.EVENT_READ, lambda _: self._obey(child))

    def _become_trainer(self, order: Request, fds: list[int], server: int) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            die_with_parent(server)
            self._let_go()
            control, given = _take_descriptors(fds, order.slots)
            os.environ.clear()
            os.environ.update(order.env)
            with contextlib.suppress(OSError):
                os.chdir(order.cwd)
            from ..trainer.main import main

            status = main(control, given, order.entry)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _let_go(self) -> None:
        """A trainer must not hold the server's sockets: its peers wait for their ends."""
        for key in list(self.selector.get_map().values()):
            os.close(key.fd)
        self.selector.close()
        self._wake.close()

    def _obey(self, child: Child) -> None:
        """A byte is a signal for the trainer; the connection's end is the trainer's end."""
        try:
            order = child.connection.recv(64)
        except OSError:
            order = b""
        if not order:
            self.selector.unregister(child.connection)
            child.told = True
            child.connection.close()
        for number in order or [signal.SIGKILL]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, number)

    def _reap(self, _: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.woken.recv(4096):
                pass
        for child in list(self.children.values()):
            # Look before reaping: while the zombie holds its id, the group that it led can be killed without fear.
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            _, status = os.waitpid(child.pid, 0)
            del self.children[child.pid]
            self._tell(child, {"exit": os.waitstatus_to_exitcode(status)})
            if not child.told:
                self.selector.unregister(child.connection)
                child.connection.close()

    def _tell(self, child: Child, message: dict[str, Any]) -> None:
        if not child.told:
            with contextlib.suppress(OSError):
                child.connection.sendall(json.dumps(message).encode() + b"\n")

    def _end(self, _: Any) -> NoReturn:
        """Trainers die with their parent; a folder whose socket is gone is of no use."""
        for child in self.children.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()  # the last server of the node tidies up
        os._exit(0)


def die_with_parent(parent: int) -> None:
    """prctl(PR_SET_PDEATHSIG): the kernel kills this process when the one that started it dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _take_descriptors(fds: list[int], slots: int) -> tuple[socket.socket, dict[str, Any]]:
    control, stdout, stderr, bell, *more = fds
    memory, listening = more[:slots], more[slots:]
    with open(os.devnull, "rb") as null:  # noqa: PTH123
        os.dup2(null.fileno(), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    given = {"bell": bell, "slots": tuple(memory), "master_fd": listening[0] if listening else None}
    return socket.socket(fileno=control), given


def preload() -> None:
    """Import what trainers need. What fails here fails again in the trainer, which can tell its user."""
    own = [f"{WORKERS}.{name}" for name in ("trainer.main", "trainer.loop", "spec")]
    for name in (*PRELOAD, *own):
        try:
            importlib.import_module(name)
        except Exception:
            traceback.print_exc()
    gc.collect()
    gc.freeze()  # what is imported stays shared: the collector of a child must not write to its pages


def main() -> NoReturn:
    listener = socket.socket(fileno=int(sys.argv[1]))
    server = Server(listener, int(sys.argv[2]), Path(sys.argv[3]))
    preload()
    server.serve()


if __name__ == "__main__":
    main()
