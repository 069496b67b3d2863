"""The clone of a job: the service makes it, where it needs nothing of this machine. Both clients use this."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...service.schemas.job import Job, JobClone
from ...service.schemas.submitted_spec import SubmittedSpec
from .. import spec_copy, spec_file
from ..spec_file import GivenSpec
from ..spec_overrides import placed
from . import code_folder
from .requests import _as_api_error, _keyed, _of
from .transport import Call


def copied(job: Job, submitted: SubmittedSpec, name: str | None, values: Mapping[str, Any]) -> GivenSpec | None:
    """The spec of a job's clone, with these values, if this machine must submit it; None: the service can make it, by `clone`.

    Code to upload and the folder of relative paths are here alone. Raises `ApiError` for a path that has no place in the spec.
    """
    with _as_api_error():
        given = spec_copy.cloned(job, submitted, name, values)
        asked = placed(given.document, values)
    document = spec_file.absolute(asked, Path.cwd()) if values else asked
    if code_folder.to_upload(document) is None and document == asked and _is_accepted(name, values):
        return None
    return replace(given, document=document)


def clone(job: str, name: str | None, values: Mapping[str, Any], key: str | None) -> Call[Job]:
    content = json.dumps({"name": name or None, "set": dict(values)}).encode()
    return Call("POST", _of(job, "/clone"), Job.model_validate, content=content, headers=_keyed(key))


def _is_accepted(name: str | None, values: Mapping[str, Any]) -> bool:
    """Whether the service clones with this. Why not, if there is a reason, the submission says."""
    try:
        JobClone(name=name or None, set=dict(values))
    except ValidationError:
        return False
    return True
