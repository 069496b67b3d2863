"""The calls about metrics that programs log, each with its request and the type of its response. Both clients use them."""

from collections.abc import Sequence
from typing import Any

from ...service.schemas.logged_metric import JobLoggedValues, LoggedCurves, LoggedMetrics, LoggedNames, LoggedValues
from .requests import _of
from .transport import Call


def logged_metrics(name: str, **wanted: Any) -> Call[LoggedMetrics]:
    return Call("GET", _of(name, "/logged-metrics"), LoggedMetrics.model_validate, params=wanted)


def logged_curves(
    name: str, names: str | Sequence[str], *, from_step: int, to_step: int | None, buckets: int
) -> Call[LoggedCurves]:
    wanted = [names] if isinstance(names, str) else list(names)
    params = {"name": wanted, "from": from_step, "to": to_step, "buckets": buckets}
    return Call("GET", _of(name, "/logged-curves"), LoggedCurves.model_validate, params=params)


def logged_names(jobs: Sequence[str], **wanted: Any) -> Call[LoggedNames]:
    return Call("GET", "/v1/logged-names", LoggedNames.model_validate, params={"job": list(jobs), **wanted})


def logged_values(jobs: Sequence[str], names: str | Sequence[str]) -> Call[list[JobLoggedValues]]:
    params = {"job": list(jobs), "name": [names] if isinstance(names, str) else list(names)}
    return Call("GET", "/v1/logged-values", lambda body: LoggedValues.model_validate(body).items, params=params)
