"""A private Ray node of a job: its processes and its folder end with the block that starts it, or with this process.

Ray's own processes end with the one that this process starts (`ray_start.py`). Ray's workers lead process groups of their own; once the
raylet is gone they are children of this process, or of its fork server, and are killed there (`parent_death.py`).
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..locked_folder import locked_folder
from ..parent_death import kill_orphans

_COMMAND: Final = Path(__file__).with_name("ray_start.py")
#: Ray writes the cluster's address to this file in its folder when the node has started.
_ADDRESS: Final = "ray_current_cluster"
#: Name of the folders. Ray's sockets are below them, whose paths have at most 107 bytes.
_PREFIX: Final = "shardyard-ray-"
#: Maximum bytes of the path of the folder of temporary files, for that reason.
_LONGEST_ROOT: Final = 16
#: Seconds for killed processes to end.
END_S: Final = 20.0
#: Bytes at the end of Ray's output in which the reason of a failed start is sought.
_MOST_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class NodeResources:
    """What a Ray node offers. `object_store`: bytes."""

    cpus: int
    gpus: int
    object_store: int


class RayNode:
    """The processes of one node."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self._process, self._folder = process, folder

    @property
    def address(self) -> str | None:
        """The cluster's address, once this node has started."""
        try:
            return (self._folder / "r" / _ADDRESS).read_text().strip() or None
        except FileNotFoundError:
            return None

    @property
    def pid(self) -> int:
        """The process that ends when one of the node's daemons does."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def output(self) -> str:
        """The end of what `ray start` has printed."""
        with contextlib.suppress(OSError), (self._folder / "output").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_BYTES))
            return file.read().decode(errors="replace")
        return ""

    def end(self) -> None:
        """Kill all processes of the node, and what they have started, wait for their ends, and remove the folder."""
        if not self.has_ended:  # else its id may be another process's, and its daemons have died with it
            self._process.kill()
            with contextlib.suppress(ProcessLookupError):  # it leads no group yet
                os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that waits for a device or a file system stays
            self._process.wait(END_S)
        kill_orphans((), END_S)
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def ray_node(
    python: str, cwd: Path, env: Mapping[str, str], host: str, head: str | None, resources: NodeResources
) -> Iterator[RayNode]:
    """Start a node with this interpreter, which ends with the block. Raises OSError.

    `cwd`: in which its workers run, as below a driver's own `ray.init()`. `host`: the address at which it listens. `head`: address of
    the cluster that it joins; None: it is the first node. When the block ends, all children of this process are killed: the program has
    ended before.
    """
    with locked_folder(_PREFIX, _root()) as folder, (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [python, str(_COMMAND), str(os.getpid()), *_options(host, head, resources), f"--temp-dir={folder / 'r'}"],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        node = RayNode(process, folder)
        try:
            yield node
        finally:
            node.end()


def _options(host: str, head: str | None, resources: NodeResources) -> list[str]:
    joins = [f"--address={head}"] if head else ["--head", "--port=0", "--include-dashboard=false", "--no-monitor"]
    return [
        "start",
        "--block",
        *joins,
        f"--node-ip-address={host}",
        f"--num-cpus={resources.cpus}",
        f"--num-gpus={resources.gpus}",
        f"--object-store-memory={resources.object_store}",
        "--min-worker-port=0",  # any free ones
        "--max-worker-port=0",
        "--disable-usage-stats",
        "--log-style=record",
        "--log-color=false",
    ]


def _root() -> Path:
    """Where the folder is: among temporary files, or where its path is short enough."""
    root = Path(tempfile.gettempdir())
    return root if len(os.fsencode(root)) <= _LONGEST_ROOT else Path("/tmp")  # noqa: S108  (the folder in it is private)
