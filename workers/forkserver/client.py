"""Finds or starts the node's fork server, for rank actors and the control plane.

No call waits for the server's imports, unless more clients connect meanwhile than the kernel lets wait. The server starts under a file
lock, in a private folder (0700).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

from .. import unix_socket
from ..one_thread import ONE_THREAD

#: Variables that change what an import does. Each set of values has a server of its own.
IMPORT_VARIABLES: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
#: If an import checks for a device, torch asks NVML, not CUDA.
NO_CUDA: Final = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
PACKAGE: Final = Path(__file__).resolve().parents[2]
SOCKET: Final = "s"
#: Seconds for room in the backlog. A supervisor gives a rank's start 120 s.
_ROOM_S: Final = 100.0


class ForkError(RuntimeError):
    """The fork server did not start a trainer. Look into its log, `fork.log` beside its socket."""

    code = "fork_failed"


def fingerprint() -> str:
    """A digest of names, sizes and times of the package's files that trainers import."""
    digest = hashlib.sha256()
    for folder in ("strategies", "workers"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            with contextlib.suppress(FileNotFoundError):
                facts = path.stat()
                digest.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def folder_name(env: dict[str, str]) -> str:
    """Name of the folder of the server for this interpreter, package, code and environment."""
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


def connect(root: Path, owner: int, env: dict[str, str]) -> socket.socket:
    """A connection to the node's server below `root` for environment `env`.

    If none runs, starts one that ends with the process `owner`. Raises OSError, ForkError.
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
    """A connection to the server of this folder; None if there is none. Raises OSError."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(5.0)
        unix_socket.connect(client, str(folder / SOCKET), _ROOM_S)
        return client
    except (FileNotFoundError, ConnectionRefusedError):
        client.close()
        return None
    except BaseException:
        client.close()
        raise


def _start(folder: Path, owner: int, env: dict[str, str]) -> socket.socket:
    """Bind first, then start the server on the bound socket. Clients that connect meanwhile wait in its backlog."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, (folder / "fork.log").open("ab") as log:
        (folder / SOCKET).unlink(missing_ok=True)
        listener.bind(str(folder / SOCKET))
        listener.listen(unix_socket.BACKLOG)
        # One thread, because a process with several threads cannot be forked safely. OpenBLAS starts its pool at import.
        own = {name: value for name, value in env.items() if not name.startswith("RAY_")} | ONE_THREAD | NO_CUDA
        arguments = [sys.executable, "-P", "-m", str(__package__), str(listener.fileno()), str(owner), str(folder)]
        # The shell exits at once, which orphans the server: Ray kills the children of an actor that exits.
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
