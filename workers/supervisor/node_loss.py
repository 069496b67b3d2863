"""Whether ranks were lost alone, or with their node: a node's death is one incident.

Ray notices a dead node only after some seconds. Until then a node whose raylet takes no connection may be dead.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Final

from ..messages.rank_set import format_ranks
from .policies.failures import Failure
from .ranks.handles import within
from .ranks.members import Member

#: Ray notices a dead node within this time: 13 s by its defaults (measured).
NOTICE_S: Final = 25.0
ASK_S: Final = 2.0
RETRY_S: Final = 0.2


async def lost_node(members: Sequence[Member], accused: Collection[int]) -> Failure | None:
    """The failure of a dead node of lost or `accused` ranks. None if no such node died."""
    suspects = {member.node for member in members if member.node and (member.lost or member.rank in accused)}
    deadline = time.monotonic() + NOTICE_S
    while suspects and time.monotonic() < deadline:
        living = await asyncio.to_thread(_living)
        for node in sorted(suspects - living.keys()):
            return _failure(node, members)
        suspects = {node for node in suspects if not await _answers(*living[node])}
        await asyncio.sleep(RETRY_S if suspects else 0.0)
    return None


async def _answers(address: str, port: int) -> bool:
    """Whether the raylet accepts TCP connections. A dead raylet refuses; a dead machine times out."""
    try:
        _, writer = await within(ASK_S, asyncio.open_connection(address, port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _living() -> dict[str, tuple[str, int]]:
    """The nodes that Ray reports as alive, with their raylets' addresses."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    return {str(node["NodeID"]): (str(node["NodeManagerAddress"]), int(node["NodeManagerPort"])) for node in nodes}


def _failure(node: str, members: Sequence[Member]) -> Failure:
    ranks = [member.rank for member in members if member.node == node]
    message = f"node {node[:12]} took {format_ranks(ranks)} along"
    return Failure("node_lost", None, message, node, evidence={"ranks": ranks})
