"""Identifies equal exceptions: by type, message, location in the code, and the step in which they were raised."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from ...workers.messages.rank_event import LAST_LINE

_FRAME: Final = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
#: What differs between two runs of the same code: addresses, process numbers, temporary names.
_CHANCE: Final = re.compile(r"0x[0-9a-fA-F]+|\bpid[ =:]*\d+|/tmp/\S+")


def fingerprint(incident: Mapping[str, Any]) -> str:
    """The fingerprint of an `exception` incident's data. It does not depend on the rank that reported it, as all may raise it."""
    said, *_ = str(incident.get("message") or "").partition(LAST_LINE)  # what a program prints may have times in it
    parts = (_CHANCE.sub("…", said), _place(str(incident.get("traceback") or "")), str(incident.get("raised_in")))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _place(traceback: str) -> str:
    """File, line and function of the innermost frame."""
    frames = list(_FRAME.finditer(traceback))
    return ":".join(frames[-1].groups()) if frames else ""
