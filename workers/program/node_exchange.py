"""What the trainer processes of a gang exchange about their nodes, through its store. All of them call it: each waits for the others."""

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..messages.rendezvous import RankAssignment
from .program import Program


def values_of_node(store: TCPStore, coords: RankAssignment, what: str, mine: str) -> list[str]:
    """The values of all ranks of this node, by local rank."""
    key = f"shardyard/{what}/{coords.node_rank}/{{}}".format
    store.set(key(coords.local_rank), mine)
    return [store.get(key(local)).decode() for local in range(coords.local_world_size)]


def numbered_ranks(program: Program, store: TCPStore, coords: RankAssignment) -> list[int]:
    """The gang's ranks, in the order in which the program numbers its own.

    A launcher per node, such as torchrun, numbers the ranks of the first node, then those of the second. Of the gang's ranks a node may
    have any, after a repair.
    """
    if not program.per_node or program.ray is not None:
        return list(range(coords.world_size))
    here = values_of_node(store, coords, "ranks", str(coords.rank))
    key = "shardyard/ranks-of-node/{}".format
    if coords.local_rank == 0:
        store.set(key(coords.node_rank), ",".join(here))
    nodes = store.multi_get([key(node) for node in range(coords.nodes)])
    return [int(rank) for node in nodes for rank in node.decode().split(",")]
