"""The private Ray cluster of a job: a Ray node on each node of the gang, and the driver on the first.

The first rank of each node starts a Ray node with the devices that the gang's ranks have there. They meet in the store of rank 0. The
cluster has a token of its own, and listens on the loopback address if the gang has one node. It ends with the driver.
"""

import contextlib
import math
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from torch.distributed import Store  # type: ignore[attr-defined]

from ..messages.rendezvous import RankAssignment
from .build_process import shortened
from .program import Program, RayShare
from .ray_node import NodeResources, RayNode, ray_node
from .report_socket import RAY_NODE, RAY_ROLE
from .shared_folder import EndRequested

#: Seconds for a node to start. Ray's import is slow on a cold disk.
START_S: Final = 300.0
#: Seconds for all nodes to join.
JOIN_S: Final = 600.0
#: Seconds between two looks at a node and its start.
LOOK_S: Final = 0.2
#: Seconds between two looks into the store of rank 0, which all nodes use.
ASK_S: Final = 1.0
#: Seconds after the end of a driver that failed in which a Ray node may turn out to be the cause: `ray start` looks once a second.
BLAME_S: Final = 2.5
#: Seconds for a driver to end after SIGTERM, for the other nodes.
STOP_S: Final = 40.0
#: Folder of the job in the storage, which all nodes see.
STORAGE: Final = "SHARDYARD_JOB_STORAGE"
_LOOPBACK: Final = "127.0.0.1"
#: Code of the cause of a node that was lost: the gang is repaired.
LOST: Final = "rank_lost"
#: Lines of Ray's output that say why it ended, the better ones first.
_WHY: Final = (
    re.compile(r".*\[exit code="),
    re.compile(r"[\w.]*(Error|Exception)\b"),
    re.compile(r"\S+ \S+\s+(ERR|PANIC)\b"),
)
#: Time and place of such a line.
_STAMP: Final = re.compile(r"^\S+ \S+\s+[A-Z]+ \S+ -- ")
_KEY: Final = "shardyard/ray/{}".format
_FAILED: Final = "failed"


class RayNodeFailed(Exception):
    """A Ray node has not started, or has ended before the driver. `cause`: code of the failure's cause."""

    def __init__(self, why: str, cause: str = "exception") -> None:
        super().__init__(why)
        self.cause = cause


class RayCluster:
    """The job's cluster, as one of its nodes sees it. `env`: the driver's environment."""

    def __init__(self, node: RayNode, store: Store, coords: RankAssignment, env: Mapping[str, str]) -> None:
        self.env = env
        self._node, self._store, self._coords = node, store, coords

    @property
    def has_driver(self) -> bool:
        """Whether the driver runs on this node."""
        return self._coords.node_rank == 0

    @property
    def is_lost(self) -> bool:
        """Whether this node's daemons have ended."""
        return self._node.has_ended

    def blame(self) -> None:
        """After the failure of the driver. Raises RayNodeFailed if a Ray node has ended, from which it followed."""
        deadline = time.monotonic() + BLAME_S
        while not self.is_lost and not self._store.check([_KEY("lost")]):
            if time.monotonic() >= deadline:
                return
            time.sleep(LOOK_S)
        if self.is_lost:
            raise _lost(self._node)
        raise RayNodeFailed("another node has ended before the driver", LOST)

    def end(self, *, failed: bool) -> None:
        """End this node, and if the driver has run on it the others."""
        if self.has_driver:
            with contextlib.suppress(RuntimeError):  # the store is gone
                self._store.set(_KEY("over"), _FAILED if failed else "done")
        self._node.end()

    def attend(self, is_to_stop: Callable[[], bool]) -> bool:
        """On a node without the driver: wait for the driver's end; whether it failed. Raises RayNodeFailed, EndRequested.

        A rank that is to stop stays as long as the driver may take to save.
        """
        asked, stop_by = 0.0, math.inf
        while time.monotonic() < stop_by:
            if stop_by == math.inf and is_to_stop():
                stop_by = time.monotonic() + STOP_S
            lost = self.is_lost
            if lost or time.monotonic() >= asked:
                asked = time.monotonic() + ASK_S
                if (over := _over(self._store)) is not None:
                    break
            if lost:
                with contextlib.suppress(RuntimeError):  # the store is gone
                    self._store.set(_KEY("lost"), "")
                raise _lost(self._node)
            time.sleep(LOOK_S)
        if stop_by < math.inf:
            raise EndRequested
        return over == _FAILED


@contextmanager
def ray_cluster(
    program: Program,
    store: Store,
    coords: RankAssignment,
    cwd: Path,
    env: Mapping[str, str],
    is_to_stop: Callable[[], bool],
) -> Iterator[RayCluster]:
    """The cluster, when all nodes have joined it; this node ends with the block. `cwd`, `env`: those of the program.

    Raises RayNodeFailed, EndRequested, OSError.
    """
    assert program.ray is not None
    first = coords.node_rank == 0
    if first:
        store.set(_KEY("token"), secrets.token_hex(32))
    own = variables(program.ray, coords, _awaited(store, "token", is_to_stop), env)
    head = None if first else _awaited(store, "head", is_to_stop)
    python = interpreter(program.command, env)
    of_node, offered = own | {RAY_ROLE: RAY_NODE}, resources(program.ray, coords)
    with ray_node(python, cwd, of_node, _host(coords), head, offered) as node:
        address = _started(node, is_to_stop)
        if first:
            store.set(_KEY("head"), address)
        _meet(store, coords.nodes, node, is_to_stop)
        cluster = RayCluster(node, store, coords, own | {RAY_ROLE: "driver", "RAY_ADDRESS": address})
        failed = True
        try:
            yield cluster
            failed = False
        finally:
            cluster.end(failed=failed)


def variables(share: RayShare, coords: RankAssignment, token: str, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of the cluster's processes. `token`: without it, a process on another machine could run code in the cluster."""
    own = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    if coords.nodes == 1:
        own["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else Ray replaces 127.0.0.1 by the machine's outer address
    if share.storage is not None:
        own[STORAGE] = share.storage
    return {"RAY_COLOR_PREFIX": "0"} | dict(env) | own


def resources(share: RayShare, coords: RankAssignment) -> NodeResources:
    """What the gang's ranks hold on this node: their GPUs, and at least one CPU for each."""
    ranks = coords.local_world_size
    gpus = ranks if coords.device == "cuda" else 0
    return NodeResources(max(ranks, int(ranks * share.cpus)), gpus, share.object_store)


def interpreter(command: tuple[str, ...], env: Mapping[str, str]) -> str:
    """The Python whose Ray the cluster runs: that of the command if it names one by path or name, else the first `python` on PATH."""
    own = command[0] if Path(command[0]).name.startswith("python") else ""
    if own.startswith("/"):
        return own
    named = ("" if "/" in own else own, "python")
    return next((found for name in named if (found := shutil.which(name, path=env.get("PATH")))), "python")


def _host(coords: RankAssignment) -> str:
    """The address of this node at which the others reach it."""
    if coords.nodes == 1:
        return _LOOPBACK
    family = socket.AF_INET6 if ":" in coords.master_host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # which sends nothing
        probe.connect((coords.master_host, coords.master_port))
        return str(probe.getsockname()[0])


def _awaited(store: Store, name: str, is_to_stop: Callable[[], bool]) -> str:
    """What another node puts into the store. Raises RayNodeFailed, EndRequested."""
    deadline = time.monotonic() + JOIN_S
    while not store.check([_KEY(name)]):
        _go_on(is_to_stop, deadline, f"the first node has not started within {JOIN_S:g} s")
    return str(store.get(_KEY(name)).decode())


def _started(node: RayNode, is_to_stop: Callable[[], bool]) -> str:
    """The cluster's address, once the node has started. Raises RayNodeFailed, EndRequested."""
    deadline = time.monotonic() + START_S
    while (address := node.address) is None:
        if node.has_ended:
            raise RayNodeFailed(_logged(node))
        _go_on(is_to_stop, deadline, f"this node has not started within {START_S:g} s")
    return address


def _meet(store: Store, nodes: int, node: RayNode, is_to_stop: Callable[[], bool]) -> None:
    """Wait until all nodes have joined. Raises RayNodeFailed, EndRequested."""
    if store.add(_KEY("joined"), 1) == nodes:
        store.set(_KEY("complete"), "")
    deadline = time.monotonic() + JOIN_S
    while not store.check([_KEY("complete")]):
        if node.has_ended:
            raise _lost(node)
        _go_on(is_to_stop, deadline, f"other nodes have not joined within {JOIN_S:g} s")


def _go_on(is_to_stop: Callable[[], bool], deadline: float, why: str) -> None:
    """Wait for the next look. Raises RayNodeFailed, EndRequested."""
    if is_to_stop():
        raise EndRequested
    if time.monotonic() >= deadline:
        raise RayNodeFailed(why)
    time.sleep(LOOK_S)


def _over(store: Store) -> str | None:
    """How the driver has ended; None if it has not. A store that is gone has ended with its rank, which that rank's actor reports."""
    try:
        return str(store.get(_KEY("over")).decode()) if store.check([_KEY("over")]) else None
    except RuntimeError:
        return _FAILED


def _lost(node: RayNode) -> RayNodeFailed:
    return RayNodeFailed(f"this node has ended before the driver: {_logged(node)}", LOST)


def _logged(node: RayNode) -> str:
    """Copy Ray's output to the rank's log, before the folder is removed. Returns the reason in it."""
    sys.stderr.write(node.output)
    sys.stderr.flush()
    return reason(node.output)


def reason(output: str) -> str:
    """Why `ray start` ended, as one line: of its output the daemon that ended, else the last error, else the last line."""
    if "No module named 'ray'" in output:
        return "the program's Python has no Ray: name ray in env.python or in the file of env.conda, or set env.inherit"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    found = ([line for line in lines if sign.match(line)] for sign in _WHY)
    last = next((errors[-1] for errors in found if errors), lines[-1] if lines else "it printed nothing")
    return shortened(_STAMP.sub("", last)) or f"a line of {len(last)} characters"
