"""Refuses query parameters that a route does not define: ignoring a filter would return the answer to another request."""

import difflib

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import HTTPConnection

from ..errors import InvalidParameter


def refuse_unknown(request: HTTPConnection) -> None:
    """A dependency of every route. Raises InvalidParameter."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute | APIWebSocketRoute):
        return
    known = sorted(_names(route.dependant))
    for name in request.query_params:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"Did you mean {close[0]!r}? " if close else ""
            takes = f"It takes: {', '.join(known)}." if known else "It takes none."
            raise InvalidParameter(
                f"{name[:80]!r} is not a parameter of {request.scope.get('method', 'the WebSocket')} {route.path}.",
                field=name[:80],
                remedy=guess + takes,
            )


def _names(dependant: Dependant) -> set[str]:
    below = (_names(each) for each in dependant.dependencies)
    return {field.alias for field in dependant.query_params}.union(*below)
