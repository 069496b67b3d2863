"""Generates the API's description (OpenAPI 3.1) from its routes, for `/openapi.json` and the dashboard's types.

`python -m shardyard.api.cli.commands.openapi` prints it.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ..service.schemas.code import CodeManifest
from ..service.schemas.exec import ExecRequest
from ..service.schemas.fault import FaultRequest
from ..service.schemas.job import JobClone, JobEdit, LayoutChange
from ..service.schemas.model import AliasRequest, VersionRequest
from ..service.schemas.problem import Problem
from ..service.schemas.profile import ProfileRequest
from ..service.schemas.secret import SecretValue
from ..service.schemas.session import SignIn
from ..service.spec import CommandSpec, JobSpec
from ..service.sweep_spec import SweepOfCommand, SweepOfTraining
from .http.stream_schema import stream_components

_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "The access token, which `shardyard token` prints. A browser that has signed in sends a cookie instead.",
}


def document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, plus the schemas of the bodies that its routes read themselves."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, tags=app.openapi_tags, routes=app.routes
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for model in (
            JobSpec,
            CommandSpec,
            SweepOfTraining,
            SweepOfCommand,
            CodeManifest,
            SecretValue,
            FaultRequest,
            ProfileRequest,
            ExecRequest,
            JobClone,
            JobEdit,
            LayoutChange,
            VersionRequest,
            AliasRequest,
            SignIn,
            Problem,
        ):
            described = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= described.pop("$defs", {})
            schemas[model.__name__] = described
        schemas |= stream_components()
        made["components"]["securitySchemes"] = {"token": _TOKEN}
        made["security"] = [{"token": []}]
        app.openapi_schema = made
    return app.openapi_schema
