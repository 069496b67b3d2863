"""What the processes of a rank's program send to its trainer process, checked: a program may send anything.

`python_agent/sitecustomize.py` is the other side.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from ..messages.event import read
from ..messages.metric_block import MOST_RESTARTS
from ..messages.rank_event import FailedEvent
from ..thread_stacks import MOST_FRAMES, MOST_THREADS

#: Maximum bytes of the first line of a connection: an exception with 64 Ki characters of message and of traceback, escaped.
MOST_HELLO: Final = 2 << 20
#: Process ids are positive and at most this.
_MOST_PID: Final = 2**31 - 1
#: Characters of a frame that are kept, or of a thread's name.
_MOST_TEXT: Final = 4096
#: What an exception's report has.
_FAILURE: Final = ("type", "message", "traceback")


def checked_hello(line: bytes) -> tuple[int, dict[str, Any]]:
    """The process's id, and what else is in the first line of its connection. Raises ValueError, TypeError, KeyError, RecursionError."""
    hello: dict[str, Any] = json.loads(line)
    pid = hello["pid"]
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid <= _MOST_PID:
        raise ValueError(f"{ascii(pid)[:80]} is no process id")
    return pid, hello


def checked_restarts(hello: Mapping[str, Any]) -> int:
    """How often its launcher had started the ranks again before this process, up to `MOST_RESTARTS`. Raises TypeError."""
    restarts = hello.get("restarts", 0)
    if isinstance(restarts, bool) or not isinstance(restarts, int):
        raise TypeError
    return max(0, min(restarts, MOST_RESTARTS))


def checked_failure(sent: Mapping[str, Any]) -> FailedEvent:
    """The exception that a process reports. Raises ValueError, TypeError, KeyError."""
    return read(FailedEvent, {name: sent[name] for name in _FAILURE})


def checked_answer(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Stacks, dumps of flight recorders and process groups (name → ranks) of a process, and whether it is in a group (`joined`).

    Raises ValueError, TypeError, KeyError, AttributeError.
    The dumps are not read here: torch makes them, and another version may make others.
    """
    return {
        "stacks": [_stack(one) for one in sent["stacks"][:MOST_THREADS]],
        "dumps": list(sent["dumps"]),
        "groups": {name: [_rank(one) for one in ranks] for name, ranks in sent["groups"].items()},
        "joined": bool(sent["joined"]),
    }


def _stack(sent: Mapping[str, Any]) -> dict[str, Any]:
    frames = [_text(frame) for frame in sent["frames"][-MOST_FRAMES:]]
    return {"thread": _text(sent["thread"]), "frames": frames, "call": _text(sent["call"])}


def _text(sent: Any) -> str:
    if not isinstance(sent, str):
        raise TypeError
    return sent[:_MOST_TEXT]


def _rank(sent: Any) -> int:
    if isinstance(sent, bool) or not isinstance(sent, int):
        raise TypeError
    return sent
