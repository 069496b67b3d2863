"""The calls of the model registry, each with its request and the type of its response. Both clients use them."""

import json
from typing import Any

from ...service.schemas.model import Model, ModelAlias, ModelHistory, Models, ModelVersion, ModelVersions
from .requests import _JSON, _keyed, _quoted
from .transport import Call


def models(after: str | None, limit: int) -> Call[Models]:
    return Call("GET", "/v1/models", Models.model_validate, params={"after": after, "limit": limit})


def model(name: str) -> Call[Model]:
    return Call("GET", _of(name), Model.model_validate)


def history(name: str, before: int | None, limit: int) -> Call[ModelHistory]:
    params = {"before": before, "limit": limit}
    return Call("GET", _of(name, "/history"), ModelHistory.model_validate, params=params)


def versions(name: str, before: int | None, limit: int) -> Call[ModelVersions]:
    params = {"before": before, "limit": limit}
    return Call("GET", _of(name, "/versions"), ModelVersions.model_validate, params=params)


def version(name: str, which: str | int) -> Call[ModelVersion]:
    return Call("GET", _of(name, f"/versions/{_quoted(str(which))}"), ModelVersion.model_validate)


def create_version(name: str, key: str | None, **wanted: Any) -> Call[ModelVersion]:
    content = json.dumps({field: value for field, value in wanted.items() if value is not None}).encode()
    return Call("POST", _of(name, "/versions"), ModelVersion.model_validate, content=content, headers=_keyed(key))


def delete_version(name: str, number: int) -> Call[Model]:
    return Call("DELETE", _of(name, f"/versions/{number}"), Model.model_validate)


def set_alias(name: str, alias: str, number: int, expected: int | None) -> Call[ModelAlias]:
    wanted = {"version": number} if expected is None else {"version": number, "expected": expected}
    path = _of(name, f"/aliases/{_quoted(alias)}")
    return Call("PUT", path, ModelAlias.model_validate, content=json.dumps(wanted).encode(), headers=_JSON)


def remove_alias(name: str, alias: str, expected: int | None) -> Call[Model]:
    return Call("DELETE", _of(name, f"/aliases/{_quoted(alias)}"), Model.model_validate, params={"expected": expected})


def _of(name: str, what: str = "") -> str:
    return f"/v1/models/{_quoted(name)}{what}"
