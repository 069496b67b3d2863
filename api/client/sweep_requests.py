"""The calls of sweeps, each with its request and the type of its response. Both clients use them."""

import json
from typing import Any

from ...service.schemas.sweep import SweepDetail, Sweeps, SweepTrials
from .requests import _keyed, _quoted
from .transport import Call


def submit(document: Any, key: str | None) -> Call[SweepDetail]:
    content = json.dumps(document).encode()
    return Call("POST", "/v1/sweeps", SweepDetail.model_validate, content=content, headers=_keyed(key))


def sweeps(limit: int, cursor: str | None) -> Call[Sweeps]:
    return Call("GET", "/v1/sweeps", Sweeps.model_validate, params={"limit": limit, "cursor": cursor})


def sweep(name: str) -> Call[SweepDetail]:
    return Call("GET", f"/v1/sweeps/{_quoted(name)}", SweepDetail.model_validate)


def trials(name: str, since: float | None) -> Call[SweepTrials]:
    return Call("GET", f"/v1/sweeps/{_quoted(name)}/trials", SweepTrials.model_validate, params={"since": since})


def cancel(name: str) -> Call[SweepDetail]:
    return Call("POST", f"/v1/sweeps/{_quoted(name)}/cancel", SweepDetail.model_validate)
