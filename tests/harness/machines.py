"""The machines on which chaos plays: a head into which no fault is injected, and others of which one after the other is killed or cut off.

Rules that it keeps: those that are left have room for a gang, so that it is repaired whether or not the fresh one has come; and on
a lost one nothing is killed: its ranks must end by themselves.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from .network import Network
from .nodes import Node, Nodes, running_nodes

#: Two ranks each: two machines hold a gang of four.
CPUS = 1.0
RANKS = 2
MACHINES = 3


@dataclass
class Machines:
    """`nodes` are all that there ever were; `lost` those into which a fault was injected, or that Ray gave up."""

    nodes: Nodes
    lost: list[Node] = field(default_factory=list)
    cut: list[Node] = field(default_factory=list)  # of those, the ones whose cable is out

    @property
    def settings(self) -> dict[str, str]:
        """For the control plane."""
        return self.nodes.settings | {"SHARDYARD_CPU_RANKS_PER_CORE": str(RANKS)}

    def processes(self, lost: bool = False) -> list[psutil.Process]:
        """Of the machines that are in use, or of those that are `lost`."""
        return [process for process, node in self.nodes.processes() if (node in self.lost) == lost]

    def with_one_of(self, processes: list[psutil.Process]) -> list[Node]:
        """The machines, but for the head, on which any of these runs."""
        there = {process: node for process, node in self.nodes.processes() if node not in self.lost}
        found = [there[process] for process in processes if process in there]
        return [node for node in self.nodes.nodes[1:] if node in found]

    def kill(self, node: Node) -> None:
        self.lost.append(node)
        self.nodes.kill_raylet(node)

    def pull_cable(self, node: Node) -> None:
        self.lost.append(node)
        self.cut.append(node)
        self.nodes.cut_node(node)

    def plug_in(self, node: Node) -> None:
        self.cut.remove(node)
        self.nodes.join_node(node)

    def complete(self) -> bool:
        """Fresh machines for those that are lost, also where Ray gave one up that was only slow; whether there were any."""
        living = [node for node in self.nodes.nodes if node not in self.lost]
        self.lost += [node for node in living if not node.lives]
        lacking = MACHINES - (len(self.nodes.nodes) - len(self.lost))
        self.nodes.add_nodes([CPUS] * lacking)
        return lacking > 0


@contextlib.contextmanager
def running_machines() -> Iterator[Machines]:
    """With networks of their own where this process may make them. Whatever happens, nothing of them stays."""
    with running_nodes([CPUS] * MACHINES, network=Network.possible()) as nodes:
        yield Machines(nodes)
