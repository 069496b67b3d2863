"""Whether ranks were lost alone, or with their node: a node's death is one incident. Nodes that die together are one each.

Ray notices a dead node only after some seconds. Until then a node whose raylet takes no connection may be dead.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Final

from ..messages.rank_set import format_ranks
from .policies.failures import Failure
from .ranks.handles import within
from .ranks.members import Member, nodes

#: Ray notices a dead node within this time: 13 s by its defaults (measured).
NOTICE_S: Final = 25.0
ASK_S: Final = 2.0
RETRY_S: Final = 0.2


async def lost_nodes(members: Sequence[Member], accused: Collection[int]) -> list[Failure]:
    """The failure of each dead node, if a node of lost or `accused` ranks is dead: what ended it may have ended others of the gang."""
    suspects = {member.node for member in members if member.node and (member.lost or member.rank in accused)}
    dead: set[str] = set()
    deadline = time.monotonic() + NOTICE_S
    while suspects and time.monotonic() < deadline:
        living = await asyncio.to_thread(_living)
        if not dead and suspects - living.keys():
            suspects.update(nodes(members))
        dead |= suspects - living.keys()
        asked = sorted(suspects - dead)
        answers = await asyncio.gather(*(_answers(*living[node]) for node in asked))
        suspects = {node for node, answer in zip(asked, answers, strict=True) if not answer}
        await asyncio.sleep(RETRY_S if suspects else 0.0)
    return [_failure(node, members) for node in sorted(dead)]


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

    alive = [node for node in ray.nodes() if node["Alive"]]
    return {str(node["NodeID"]): (str(node["NodeManagerAddress"]), int(node["NodeManagerPort"])) for node in alive}


def _failure(node: str, members: Sequence[Member]) -> Failure:
    ranks = [member.rank for member in members if member.node == node]
    message = f"node {node[:12]} took {format_ranks(ranks)} along"
    return Failure("node_lost", None, message, node, evidence={"ranks": ranks})
