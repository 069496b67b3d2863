"""Several Ray nodes on one machine, to be killed one by one; with networks of their own (`Network`, needs root) also to be cut off.

Rules that it keeps: every process of a node carries the node's folder in its environment, and the end kills exactly those; a node
that is killed loses all its processes at the same moment, as a machine does, so that none of them sees another die.
"""

import contextlib
import itertools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from shardyard.service.cluster.ray_head import WARM_MODULES, marked
from shardyard.workers.rank.host import NODE_FOLDER

from .control_plane import until
from .network import Network
from .patience import PATIENCE_S

TRIES = 4
#: A dead node is missed after about five seconds (its port refuses), a silent one after a minute, with networks of their own after 25
#: seconds: a machine under load is no dead one.
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "5",
}


@dataclass
class Node:
    """One node: `id` is Ray's name for it."""

    number: int
    ip: str
    folder: Path
    process: "subprocess.Popen[bytes]" = field(repr=False)
    id: str = ""
    raylet: int = 0

    @property
    def lives(self) -> bool:
        """Whether its raylet does; a zombie does not."""
        try:
            return psutil.Process(self.raylet).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def processes(self) -> list[int]:
        """Everything that came from it and still runs."""
        return sorted(process.pid for process in marked(str(self.folder)))


class Nodes:
    """A Ray cluster: `address` and `token` (a file) are what joins it, `nodes[0]` is the head."""

    def __init__(self, network: Network | None = None) -> None:
        self.network = network
        self.folder = Path(tempfile.mkdtemp(prefix="sy-"))  # short: below it lie sockets
        self.token = self.folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        self.nodes: list[Node] = []
        self._begun: list[Node] = []  # and those that did not come to be
        self.address = ""
        self.gpus: dict[int, int] = {}  # that these nodes report to Ray, though they have none
        self.labels: dict[int, str] = {}  # of the nodes with these numbers, as `ray start --labels` takes them

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def settings(self) -> dict[str, str]:
        """What has a control plane use this cluster (`Plane.given`)."""
        joins = {"SHARDYARD_RAY_ADDRESS": self.address, "SHARDYARD_RAY_AUTH_TOKEN_PATH": str(self.token)}
        return joins | {"SHARDYARD_CORDON_FAULTS": "0"}  # what a test breaks is not the node's fault

    def start(self, cpus: float, env: dict[str, str] | None = None) -> Node:
        """The head; `env` is for it and for all nodes that follow."""
        self._env = env or {}
        return self.add_node(cpus)

    def add_node(self, cpus: float) -> Node:
        """One more node; returns once the cluster has it."""
        return self.add_nodes([cpus])[0]

    def add_nodes(self, cpus: Sequence[float]) -> list[Node]:
        """Several at once: one takes seconds."""
        first = len(self.nodes)
        with ThreadPoolExecutor(max(1, len(cpus))) as pool:
            nodes = list(pool.map(self._add, itertools.count(first), cpus))
        self.nodes += nodes
        return nodes

    def kill_node(self, node: Node) -> None:
        """SIGKILL of all its processes, none of which does anything from the first on: they are stopped before."""
        stopped: set[int] = set()
        while found := set(node.processes()) - stopped:  # one may just have begun another
            _signal(found, signal.SIGSTOP)
            stopped |= found
        _signal(stopped, signal.SIGKILL)

    def kill_raylet(self, node: Node) -> None:
        """SIGKILL of its raylet alone: Ray has lost the node; its workers end when they miss it."""
        os.kill(node.raylet, signal.SIGKILL)

    def cut_node(self, node: Node) -> None:
        """Nothing goes in or out any more; its processes live on and do not know. Not for the head."""
        assert self.network, "a node without a network of its own cannot be cut off"
        self.network.cut(node.number)

    def join_node(self, node: Node) -> None:
        """Give a cut-off node its network back."""
        assert self.network
        self.network.join(node.number)

    def processes(self) -> list[tuple[psutil.Process, Node]]:
        """Everything that came from any of its nodes and still runs, zombies aside, with its node."""
        folders = {str(node.folder): node for node in self.nodes}
        marks = [(process, _mark(process)) for process in psutil.process_iter()]
        return [(process, folders[mark]) for process, mark in marks if mark in folders]

    def of_process(self, pid: int) -> Node:
        """The node to which a process belongs."""
        (found,) = [node for node in self.nodes if pid in node.processes()]
        return found

    def named(self, node_id: str) -> Node:
        """The node that Ray knows by this id."""
        (found,) = [node for node in self.nodes if node.id == node_id]
        return found

    def end(self) -> None:
        """Kill all that came from it, and remove folder and networks."""
        for node in reversed(self._begun):
            _end(node)
        if self.network:
            self.network.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _add(self, number: int, cpus: float) -> Node:
        """Ray gives a node up that has not joined within 30 s, which a machine under load may take: then once more."""
        ip = self._ip(number)
        for _ in range(TRIES):
            node = self._begin(number, cpus, ip)
            until(lambda node=node: _started(node) or node.process.poll() is not None, PATIENCE_S, "a Ray node")  # type: ignore[misc]
            if node.process.poll() is None:
                return node
            log = (node.folder / "ray.log").read_text()
            _end(node)
        raise AssertionError(f"a Ray node did not start: {log[-4000:]}")

    def _ip(self, number: int) -> str:
        if self.network:
            return self.network.add(number) if number else self.network.host
        return f"127.0.0.{number + 2}"

    def _begin(self, number: int, cpus: float, ip: str) -> Node:
        folder = self.folder / f"n{number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if number == 0:
            self.address = f"{ip}:{_free_port(ip)}"  # another one with each try: another process may take it meanwhile
        inside = self.network.inside(number) if self.network and number else []
        with (folder / "ray.log").open("wb") as log:
            process = subprocess.Popen(
                [*inside, *self._command(number, ip, cpus)],
                env=self._environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        node = Node(number, ip, folder, process)
        self._begun.append(node)
        return node

    def _command(self, number: int, ip: str, cpus: float) -> list[str]:
        head = [
            "--head",
            f"--port={self.address.rpartition(':')[2]}",
            f"--temp-dir={self.folder / 'r'}",
            "--include-dashboard=false",
            "--no-monitor",
        ]
        gpus = self.gpus.get(number, 0)
        labels = [f"--labels={self.labels[number]}"] if number in self.labels else []
        return [
            *[sys.executable, "-m", "ray.scripts.scripts", "start", "--block"],
            *(head if number == 0 else [f"--address={self.address}"]),
            *[
                f"--node-ip-address={ip}",
                f"--num-cpus={cpus:g}",
                f"--num-gpus={gpus}",
                f"--object-store-memory={80 << 20}",
            ],
            *["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"],
            *["--include-log-monitor=false", "--disable-usage-stats", *labels],
        ]

    def _environment(self, folder: Path) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SHARDYARD_"))}
        ray = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_preload_python_modules": ",".join(WARM_MODULES),
            "SPT_NOENV": "1",  # Ray's workers would overwrite their environment, our mark, by their titles
        }
        # Gloo would take the host name's address, which all the nodes on loopback share, if there is any.
        alone = {"GLOO_SOCKET_IFNAME": "lo"}
        apart = {"RAY_health_check_timeout_ms": "4000"}
        return ours | ray | HEALTH | (apart if self.network else alone) | {NODE_FOLDER: str(folder)} | self._env


@contextlib.contextmanager
def running_nodes(cpus: list[float], network: bool = False, env: dict[str, str] | None = None) -> Iterator[Nodes]:
    """A head and more nodes, with these numbers of CPUs. Whatever happens, nothing of it stays."""
    nodes = Nodes(Network() if network else None)
    try:
        nodes.start(cpus[0], env)
        for more in cpus[1:]:
            nodes.add_node(more)
        yield nodes
    finally:
        nodes.end()


def _started(node: Node) -> bool:
    """Whether its raylet runs and has reported its name, which it does when the cluster has it."""
    for pid in node.processes():
        with contextlib.suppress(psutil.Error):
            command = psutil.Process(pid).cmdline()
            if command and Path(command[0]).name == "raylet":  # one that is just ending has no command line
                node.raylet = pid
                node.id = next(part.partition("=")[2] for part in command if part.startswith("--node_id="))
    return bool(node.raylet) and "Ray runtime started" in (node.folder / "ray.log").read_text()


def _mark(process: psutil.Process) -> str:
    """The folder of the node from which it came; nothing of one that has ended."""
    try:
        return process.environ().get(NODE_FOLDER, "") if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


def _end(node: Node) -> None:
    until(lambda: not _killed(node), PATIENCE_S, f"the end of {node}")
    _reap(node.process)


def _killed(node: Node) -> list[int]:
    """Its processes that were still there, and have been killed; `ray start`, their parent, reaps them first."""
    found = [pid for pid in node.processes() if pid != node.process.pid]
    _signal(found, signal.SIGKILL)
    return found


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _reap(process: "subprocess.Popen[bytes]") -> None:
    """`ray start --block` ends by itself when what it started has ended."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE_S)


def _free_port(ip: str) -> int:
    with socket.socket() as probe:
        probe.bind((ip, 0))
        return int(probe.getsockname()[1])
