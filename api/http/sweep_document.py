"""Reads the document of a sweep: its own part, and the specs of its first trial and of each end of a parameter."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from ...service.schemas.problem import FieldError
from ...service.spec import AnySpec
from ...service.sweep_spec import Sweep
from ...service.sweeps.request import SweepRequest, read_request
from ...strategies.layout import Refusal
from ..errors import InvalidDocument
from . import request_body
from .validation_errors import read_spec


class _Part(BaseModel):
    """The part of a document that is about the sweep."""

    model_config = ConfigDict(extra="ignore")

    sweep: Sweep


def read_sweep(document: Any) -> tuple[SweepRequest, AnySpec]:
    """The sweep, and the spec of its first trial. Raises InvalidDocument, or RequestValidationError, with the fields and remedies."""
    if not isinstance(document, dict) or "sweep" not in document:
        remedy = "Add sweep, such as sweep: {parameters: {train.optimizer.lr: [0.001, 0.003]}}; a job without it goes to /v1/jobs."
        raise InvalidDocument([FieldError(field="sweep", message="This key is missing.", remedy=remedy)])
    sweep = request_body.validated(_Part, document, strict=True).sweep
    try:
        request = read_request(document, sweep)
        first = _first(request)
        _check_extremes(request)
    except Refusal as refusal:
        finding = FieldError(field=refusal.field, message=refusal.message, remedy=refusal.remedy)
        raise InvalidDocument([finding]) from None
    return request, first


def _first(request: SweepRequest) -> AnySpec:
    """The spec of the first trial. Findings at a parameter name the parameter."""
    try:
        return read_spec(request.first)
    except InvalidDocument as error:
        raise InvalidDocument([_of_parameter(one, request.sweep) for one in error.errors]) from None


def _of_parameter(found: FieldError, sweep: Sweep) -> FieldError:
    if found.field not in sweep.parameters:
        return found
    return found.model_copy(update={"field": f"sweep.parameters.{found.field}"})


def _check_extremes(request: SweepRequest) -> None:
    """Raise InvalidDocument for a value that the job's spec refuses whatever the other parameters are."""
    for path, value, spec in request.extremes():
        try:
            read_spec(spec)
        except InvalidDocument as error:
            own = [one for one in error.errors if one.field == path]
            if own:  # a finding at another field may be due to a combination
                message = f"{value!r} is refused: {own[0].message}"
                finding = FieldError(field=f"sweep.parameters.{path}", message=message, remedy=own[0].remedy)
                raise InvalidDocument([finding]) from None
