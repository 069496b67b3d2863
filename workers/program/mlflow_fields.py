"""What MLflow clients send, field by field. A value that a field cannot have is an error that names the field.

The errors have the codes of MLflow's REST API (https://mlflow.org/docs/latest/rest-api.html).
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Maximum characters of the key and of the value of a parameter or tag. MLflow's own limits are lower.
MOST_KEY: Final = 1000
MOST_VALUE: Final = 20_000

Json = dict[str, Any]


class MlflowError(Exception):
    """What a client is to raise. `code`: one of MLflow's error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def not_supported(what: str) -> MlflowError:
    """The error of an endpoint that there is not."""
    return MlflowError(
        "ENDPOINT_NOT_FOUND",
        f"{what}: Shardyard takes only metrics, parameters, tags, artifacts and logged models of MLflow clients, without the model "
        "registry. Leave this call or registered_model_name out, or set MLFLOW_TRACKING_URI in the job's resources.env to a server of "
        "your own",
    )


def invalid(message: str) -> MlflowError:
    """The error of a field's value."""
    return MlflowError("INVALID_PARAMETER_VALUE", message)


def missing(message: str) -> MlflowError:
    """The error of something that there is not."""
    return MlflowError("RESOURCE_DOES_NOT_EXIST", message)


def text(body: Mapping[str, Any], name: str) -> str:
    """A text that a request must have. Raises MlflowError."""
    found = body.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= MOST_KEY:
        raise invalid(f"{name} is {ascii(found)[:80]}: send a text of 1 to {MOST_KEY:,} characters")
    return found


def whole(found: Any, name: str) -> int:
    """A whole number, which JSON of protocol buffers may have as text. Raises MlflowError."""
    try:
        return int(found)
    except (ValueError, TypeError, OverflowError):
        raise invalid(f"{name} is {ascii(found)[:80]}: send a whole number") from None


def records(found: Any, kind: str) -> Sequence[Json]:
    """A list of objects. Raises MlflowError."""
    if not isinstance(found, list | tuple) or not all(isinstance(one, dict) for one in found):
        raise invalid(f"{kind}s are {ascii(found)[:80]}: send a list of objects")
    return found


def texts(body: Mapping[str, Any], name: str) -> Sequence[str]:
    """A list of texts, which may be empty. Raises MlflowError."""
    found = body.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise invalid(f"{name} is {ascii(found)[:80]}: send a list of texts")
    return found


def read_pairs(found: Any, kind: str) -> dict[str, str]:
    """Keys and values of parameters or tags. Raises MlflowError."""
    return {text(one, "key"): _value(one, kind) for one in records(found, kind)}


def _value(sent: Json, kind: str) -> str:
    value = sent.get("value", "")
    if not isinstance(value, str) or len(value) > MOST_VALUE:
        raise invalid(f"value of {kind} {ascii(sent['key'])[:80]}: send a text of at most {MOST_VALUE:,} characters")
    return value


def read_page(body: Mapping[str, Any], most: int) -> tuple[int, int]:
    """Where the requested page begins, and its size, which is at most `most`. Raises MlflowError."""
    size = whole(body.get("max_results") or most, "max_results")
    if size < 1:
        raise invalid(f"max_results is {size}: send a whole number from 1")
    token = body.get("page_token") or "0"
    if not isinstance(token, str) or not (token.isascii() and token.isdigit() and len(token) < 20):
        raise invalid(f"page_token is {ascii(token)[:80]}: send the next_page_token of the page before")
    return int(token), min(size, most)


def pairs(kept: Mapping[str, str]) -> list[Json]:
    """Parameters or tags, as clients read them."""
    return [{"key": key, "value": value} for key, value in kept.items()]


def number(value: float) -> float | str:
    """A float, as JSON of protocol buffers has it."""
    return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def shown(found: str) -> str:
    """A text in a line of the log: whole, so that the rank's actor recognises secrets in it."""
    return found if found.isprintable() else ascii(found)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
