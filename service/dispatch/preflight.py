"""Decides whether an attempt times its collectives before it trains (`policy.preflight`).

Two incidents on one node may be chance, or a cable: the third attempt should know before it trains for an hour.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..store import events

#: Incidents on the same node after which `auto` wants it.
_INCIDENTS: Final = 2
#: The number of the newest incidents that are read.
_NEWEST: Final = 100
#: Causes that blame no node: those of the training code and its data, and what is no fault or known already.
_NO_FAULT_OF_A_NODE: Final = frozenset({"exception", "loss_spike", "straggler_over", "slow_network"})


async def needs_preflight(tx: AsyncConnection, job: RowMapping, avoided: Collection[str]) -> bool:
    """Whether the job's next attempt does it. `avoided`: nodes on which the attempt cannot be placed."""
    chosen = job["spec"].get("policy", {}).get("preflight", "auto")
    if chosen != "auto" or job["world_size"] == 1:
        return chosen is True
    newest = await events.of_kind_before(tx, job["id"], "incident", None, _NEWEST)
    nodes = (event["data"].get("node") for event in newest if event["data"].get("cause") not in _NO_FAULT_OF_A_NODE)
    counted = Counter(node for node in nodes if node and node not in avoided)
    return any(count >= _INCIDENTS for count in counted.values())
