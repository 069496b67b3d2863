"""Identifies equal exceptions: by type, message, location in the code, and the step in which they were raised."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

_FRAME: Final = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
#: What differs between two runs of the same code: addresses, process numbers, temporary names.
_CHANCE: Final = re.compile(r"0x[0-9a-fA-F]+|\bpid[ =:]*\d+|/tmp/\S+")


def fingerprint(incident: Mapping[str, Any]) -> str | None:
    """The fingerprint of an `exception` incident's data. It does not depend on the rank that reported it, as all may raise it.

    None if its step is not known, as of a program that ended: it may have got on since an earlier attempt.
    """
    if incident.get("raised_in") is None:
        return None
    said = _CHANCE.sub("…", str(incident.get("message") or ""))
    parts = (said, _place(str(incident.get("traceback") or "")), str(incident["raised_in"]))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _place(traceback: str) -> str:
    """File, line and function of the innermost frame."""
    frames = list(_FRAME.finditer(traceback))
    return ":".join(frames[-1].groups()) if frames else ""
