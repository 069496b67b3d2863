"""The columns of a new job's row that every kind of job has."""

import time
from typing import Any

from ..errors import InvalidSpec
from ..ids import new_job_id
from ..spec import AnySpec
from ..states import State


def new_columns(spec: AnySpec) -> dict[str, Any]:
    """Id, name, state, budgets and devices of a job that is submitted now."""
    now = time.time()
    return {
        "id": new_job_id(now),
        "name": spec.name,
        "state": State.QUEUED,
        "labels": spec.labels,
        "wanted_device": spec.device,
        "max_restarts": spec.policy.max_restarts,
        "max_retries": spec.policy.max_retries,
        "retention": spec.retention.model_dump(exclude_none=True) or None,
        "created_at": now,
    }


def refuse_null_characters(value: Any, field: str = "") -> None:
    """Raise InvalidSpec for null characters, which neither databases nor file systems accept. `value` is the spec as plain JSON."""
    if isinstance(value, str) and "\0" in value:
        raise InvalidSpec("The text holds a null character.", field=field, remedy="Remove it.")
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        refuse_null_characters(name, field)
        refuse_null_characters(part, f"{field}.{name}".lstrip("."))
