"""Errors of a request, field by field."""

from pydantic import Field

from .base import Value


class FieldError(Value):
    """One error and its remedy. `field` is a dotted path into the body, or a parameter's name."""

    field: str | None = None
    message: str
    remedy: str | None = None


class Problem(Value):
    """RFC 9457 problem details. `code` is stable; `detail` is for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str | None = None
    errors: list[FieldError] = Field(default_factory=list)
