"""Why a gang ends before its work is done: root causes, and the secondary errors that follow from them in other ranks."""

import signal
from dataclasses import dataclass, field
from typing import Any, Final

from ...messages.event import plain
from ...messages.rank_event import FailedEvent

#: Causes that are the machines' fault; an exception of the training code would come again.
REPAIRABLE: Final = frozenset({"rank_lost", "node_lost", "hang", "replica_mismatch"})
#: Messages of a rank whose peer is gone; never the root cause while there is another.
SECONDARY: Final = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket timeout",
    "timed out",
    "remote process exited",
    "nccl communicator was aborted",
    "recvvalue failed",
    "sendbytes failed",
    "recv, 0 bytes",
)


@dataclass(frozen=True)
class Failure:
    """Why a gang ends before its work is done."""

    # `exception`, `rank_lost`, `node_lost`, `hang`, `replica_mismatch`, `placement_timeout`, `devices_lost`, `start_failed`, `gang_error`,
    # `journal_unreadable`
    cause: str
    rank: int | None
    message: str
    node: str | None = None
    traceback: str | None = None
    evidence: dict[str, Any] = field(
        default_factory=dict
    )  # of a hang: `hang.evidence`, an exception: `raised_in`, a node: `ranks`

    @property
    def secondary(self) -> bool:
        """Probably a peer's connection loss, after another rank's end. A pipeline wraps the error, so the traceback counts, too."""
        text = f"{self.message}\n{self.traceback or ''}".lower()
        return self.cause == "exception" and any(sign in text for sign in SECONDARY)

    @property
    def reason(self) -> str:
        """The reason of the final state. A secondary error counts as a machine fault if no primary cause was reported."""
        return "connection_lost" if self.secondary else self.cause

    @property
    def is_repairable(self) -> bool:
        """Whether the machines are to blame. A secondary error counts as a machine fault if no primary cause was reported."""
        return self.cause in REPAIRABLE or self.secondary

    def text(self) -> str:
        who = "" if self.rank is None else f"rank {self.rank}: "
        return who + self.message + (f"\n\n{self.traceback}" if self.traceback else "")


def raised(event: FailedEvent, rank: int | None, node: str | None) -> Failure:
    """The failure for a trainer's exception. Its `facts` may have the cause, the rank to blame, and evidence."""
    facts = event.facts
    message = event.message if facts.cause != "exception" else f"{event.type}: {event.message}"
    known = {"ranks": facts.ranks, "parameter": facts.parameter, "parameters": facts.parameters, "agreed": facts.agreed}
    evidence = {name: plain(value) for name, value in known.items() if value is not None}
    return Failure(facts.cause, rank, message, node, event.traceback, {"raised_in": event.step} | evidence)


def brief(error: BaseException) -> str:
    """The error as one line, without Ray's wrapper."""
    error = getattr(error, "cause", None) or error
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def ending(status: int | None) -> str:
    """Text for a trainer's exit status."""
    if status is None:
        return "the node's fork server is gone, and the trainer with it"
    if status < 0:
        return f"the trainer was killed by {signal.Signals(-status).name}"
    return f"the trainer exited with status {status} without an exception"
