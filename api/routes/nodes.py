"""The machines that jobs run on."""

from fastapi import APIRouter

from ...service import jobs
from ..context import In
from ..models import Node, Nodes

router = APIRouter(tags=["cluster"])


@router.get("/nodes", operation_id="listNodes", summary="List the cluster's machines")
async def nodes(context: In) -> Nodes:
    """The machines as a dispatcher last saw them; none before that."""
    return Nodes(items=[Node.model_validate(node) for node in await jobs.nodes(context.store)])
