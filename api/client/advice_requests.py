"""The call about a job's layout, with its request and the type of its response. Both clients use it."""

import json
from typing import Any

from ...service.schemas.advice import LayoutAdvice
from .requests import _JSON
from .transport import Call


def advise(document: Any, wanted: dict[str, Any]) -> Call[LayoutAdvice]:
    content = json.dumps(document).encode()
    return Call("POST", "/v1/jobs/advice", LayoutAdvice.model_validate, wanted, content=content, headers=_JSON)
