"""Names made here: a job's id sorts by the time of its submission, and a gang is named after job and attempt."""

import re
import secrets
from typing import Final, Literal

#: The name of a cluster without a configured name.
CLUSTER = "default"

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
_GANG = "shardyard-"
_ULID = re.compile(r"[0-9a-z]{26}")

Kind = Literal["job", "fault", "trace", "operation", "code", "sweep", "profile", "exec"]
_PREFIXES: Final[dict[Kind, str]] = {
    "job": "job-",
    "fault": "fault-",
    "trace": "trace-",
    "operation": "op-",
    "code": "code-",
    "sweep": "sweep-",
    "profile": "profile-",
    "exec": "exec-",
}


def new_id(kind: Kind, now: float) -> str:
    """The kind's prefix and a ULID: 48 bits of milliseconds, 80 random bits. `now` is unix seconds."""
    return f"{_PREFIXES[kind]}{_ulid(now)}"


def new_job_id(now: float) -> str:
    return new_id("job", now)


def parse(kind: Kind, text: str) -> str | None:
    """The text if it has the form of an id of this kind, else None."""
    prefix = _PREFIXES[kind]
    return text if text.startswith(prefix) and _ULID.fullmatch(text, len(prefix)) else None


def _ulid(now: float) -> str:
    number = int(now * 1000) << 80 | secrets.randbits(80)
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


def gang_name(job_id: str, attempt: int) -> str:
    return f"{_GANG}{job_id}-{attempt}"


def job_of(gang: str) -> tuple[str, int] | None:
    """The job and attempt of a gang's name; None if it is not the name of a gang."""
    job_id, _, attempt = gang.removeprefix(_GANG).rpartition("-")
    if not gang.startswith(_GANG) or not job_id or not (attempt.isascii() and attempt.isdecimal()):
        return None
    return job_id, int(attempt)


def job_in(path: str) -> str | None:
    """The job in whose folder a checkpoint is; None if the path names no job."""
    return next((part for part in reversed(path.split("/")) if parse("job", part)), None)
