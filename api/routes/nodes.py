"""The machines that jobs run on, and their cordons."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service import nodes
from ...service.schemas.node import Cordons, Node, Nodes
from ..http.dependencies import Actor, In
from ..http.problems import describe

router = APIRouter(tags=["cluster"])

_REFUSALS = describe("node_not_found", "ambiguous_node", "invalid_request")

Seconds = Annotated[
    float | None,
    Query(
        gt=0,
        le=366 * 86_400,
        description="Duration of the cordon in seconds; by default it stays until an operator lifts it.",
    ),
]
Why = Annotated[
    str, Query(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$", description="Reason, shown with the cordon.")
]


@router.get("/nodes", operation_id="listNodes", summary="List the cluster's machines")
async def list_nodes(context: In) -> Nodes:
    """The machines as a dispatcher last saw them, with their cordons. Empty until a dispatcher has seen the cluster."""
    return Nodes(items=await nodes.all_nodes(context.store, context.settings))


@router.post("/nodes/{node}/cordon", operation_id="cordonNode", summary="Cordon a machine", responses=_REFUSALS)
async def cordon(node: str, context: In, actor: Actor, seconds: Seconds = None, message: Why = "") -> Node:
    """Place no new gangs on a machine (id, prefix of an id, or host). Running gangs continue."""
    found = await nodes.cordon(context.store, context.settings, node, seconds, message, actor)
    context.wake_dispatcher()
    return found


@router.post("/nodes/{node}/uncordon", operation_id="uncordonNode", summary="Lift a cordon", responses=_REFUSALS)
async def uncordon(node: str, context: In, actor: Actor) -> Node:
    """Allow new gangs on a machine again, and clear its faults. Harmless if it is not cordoned."""
    found = await nodes.uncordon(context.store, context.settings, node, actor)
    context.wake_dispatcher()
    return found


@router.get("/cordons", operation_id="listCordons", summary="List cordons", responses=describe("invalid_request"))
async def cordons(context: In, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Cordons:
    """Past and active cordons, newest first, with their author, reason and end."""
    return Cordons(items=await nodes.history(context.store, limit))
