"""The machines that jobs run on, and the cordons that keep new gangs away from some of them."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service import nodes
from ...service.schemas.node import Cordons, Node, Nodes
from ..http.dependencies import Actor, In
from ..http.problems import describe

router = APIRouter(tags=["cluster"])

_REFUSALS = describe("node_not_found", "ambiguous_node", "invalid_request")

Seconds = Annotated[
    float | None, Query(gt=0, le=366 * 86_400, description="So long; without it until somebody lifts the cordon.")
]
Why = Annotated[str, Query(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$", description="For those who wonder.")]


@router.get("/nodes", operation_id="listNodes", summary="List the cluster's machines")
async def list_nodes(context: In) -> Nodes:
    """The machines as a dispatcher last saw them, and which are cordoned; none before that."""
    return Nodes(items=await nodes.all_nodes(context.store, context.settings))


@router.post("/nodes/{node}/cordon", operation_id="cordonNode", summary="Cordon a machine", responses=_REFUSALS)
async def cordon(node: str, context: In, actor: Actor, seconds: Seconds = None, message: Why = "") -> Node:
    """Keep new gangs away from a machine (id, start of an id, or host); those that run there go on."""
    found = await nodes.cordon(context.store, context.settings, node, seconds, message, actor)
    context.stir()
    return found


@router.post("/nodes/{node}/uncordon", operation_id="uncordonNode", summary="Lift a cordon", responses=_REFUSALS)
async def uncordon(node: str, context: In, actor: Actor) -> Node:
    """Let gangs come to a machine again, and forget its faults. Harmless when it is not cordoned."""
    found = await nodes.uncordon(context.store, context.settings, node, actor)
    context.stir()
    return found


@router.get("/cordons", operation_id="listCordons", summary="List cordons", responses=describe("invalid_request"))
async def cordons(context: In, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Cordons:
    """Which machines were cordoned, by whom, why and until when; the newest first."""
    return Cordons(items=await nodes.history(context.store, limit))
