"""`python -m shardyard.workers.program.jupyter_server serve`: a Jupyter server of a development job. `show` prints where it is.

It listens on the node's loopback and asks for a random token. The token is in the server's variables and in Jupyter's own runtime file, in
a folder that only the job's user may read; Jupyter logs no token that it was given. Needs only the standard library, and Jupyter where
the job's environment has it.
"""

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NoReturn

#: Seconds for a server to begin.
BEGIN_S: Final = 60.0
#: Seconds for which the folder of a session that has ended stays.
KEEP_S: Final = 24 * 3600.0
#: What is served: the first that the environment has, by its module and its command of `jupyter`.
SERVED: Final = (("jupyterlab", "lab"), ("notebook", "notebook"), ("jupyter_server", "server"))


def serve() -> NoReturn:
    """Become the server, or end with status 1 and the reason."""
    command = next((name for module, name in SERVED if importlib.util.find_spec(module)), None)
    if command is None:
        sys.exit("The job's environment has no Jupyter: add jupyterlab to the requirements of `shardyard dev --env`.")
    folder = runtime_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(folder):
        sys.exit(f"{folder} is another user's, or others may read it.")
    for old in folder.iterdir():  # of the rank's program before a repair
        old.unlink()
    _remove_old()
    given = {"JUPYTER_RUNTIME_DIR": str(folder), "JUPYTER_TOKEN": secrets.token_urlsafe(32)}
    options = ["--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
    os.execve(sys.executable, [sys.executable, "-m", "jupyter", command, *options], {**os.environ, **given})  # noqa: S606


def _remove_old() -> None:
    """Remove the folders of this user's sessions that have ended, a day after."""
    for folder in Path(tempfile.gettempdir()).glob(f"shardyard-{os.getuid()}-*-jupyter"):
        with contextlib.suppress(OSError, ValueError):
            if not _is_private(folder) or time.time() - folder.stat().st_mtime < KEEP_S:
                continue
            servers = [json.loads(file.read_text(encoding="utf-8"))["pid"] for file in folder.glob("jpserver-*.json")]
            if not any(Path(f"/proc/{pid}").exists() for pid in servers):
                shutil.rmtree(folder)


def show() -> int:
    """Print the server's `port` and `token` as JSON, once it runs; returns the exit status."""
    deadline = time.monotonic() + BEGIN_S
    while (found := running()) is None:
        if time.monotonic() > deadline:
            sys.stdout.write(f"The Jupyter server has not begun within {BEGIN_S:g} s.\n")
            return 1
        time.sleep(0.2)
    sys.stdout.write(json.dumps({name: found[name] for name in ("port", "token")}) + "\n")
    return 0


def running() -> dict[str, Any] | None:
    """What Jupyter has written down of the job's server."""
    with contextlib.suppress(OSError, ValueError):
        for file in runtime_folder().glob("jpserver-*.json"):
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return found
    return None


def runtime_folder() -> Path:
    """The folder for Jupyter's runtime files of this job's attempt."""
    job, attempt = os.environ["SHARDYARD_JOB"], os.environ["SHARDYARD_ATTEMPT"]
    return Path(tempfile.gettempdir()) / f"shardyard-{os.getuid()}-{job}-{attempt}-jupyter"


def _is_private(folder: Path) -> bool:
    facts = folder.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    sys.exit(show())
