"""Why a gang ends before its work is done: root causes, and the secondary errors that follow from them in other ranks."""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ...messages.event import sanitize
from ...messages.rank_event import FailedEvent

#: Causes that are the machines' fault; an exception of the training code would come again.
REPAIRABLE: Final = frozenset(
    {"rank_lost", "node_lost", "hang", "replica_mismatch", "state_disk_failed", "device_failed"}
)
#: Messages of a rank whose peer is gone; never the root cause while there is another. A program's own connections fail in the
#: same words.
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
    "connection was likely closed",  # of the store, which rank 0 holds
)
#: What the CUDA runtime says of a GPU that is broken, and never of what code does on it (`cudaGetErrorString`).
DEVICE_FAILED: Final = (
    "uncorrectable ecc error encountered",
    "uncorrectable nvlink error detected during the execution",
)
#: What an error of torch.distributed, or of its libraries, has in its text: its class, or the file or class that raised it.
_OF_GROUPS: Final = re.compile(
    r"gloo|nccl|c10d|tensorpipe|processgroup|tcpstore|socketimpl|torch\.distributed"
    r"|\bdist(backend|network|store|queueempty)?error\b"
)
#: What begins the traceback of each exception in a chain.
_TRACEBACK: Final = "Traceback (most recent call last):"
#: A frame of it.
_FRAME: Final = re.compile(r'File "([^"\n]+)", line \d+')
#: First words of the message of a trainer that torch's NCCL watchdog has aborted (SIGABRT) because others did not go on.
ABORTED: Final = "NCCL's watchdog aborted the trainer"
#: What it, or the thread that monitors it, writes before that: a collective did not end.
TIMED_OUT: Final = (
    "watchdog caught collective operation timeout",
    "processgroupnccl's watchdog got stuck",
    "due to collective timeout or exception",
)
#: The same, where a peer is gone. An error of the rank's own device is neither: it is a cause.
PEER_GONE: Final = ("remote process exited or there was a network error", "nccl communicator was aborted")
#: What the C++ runtime writes if a thread of a process group still runs at the process's exit: gloo's does, sometimes.
TERMINATED: Final = "terminate called without an active exception"


@dataclass(frozen=True)
class Failure:
    """Why a gang ends before its work is done."""

    # `exception`, `rank_lost`, `node_lost`, `hang`, `replica_mismatch`, `placement_timeout`, `devices_lost`, `start_failed`, `gang_error`,
    # `journal_unreadable`, `other_version`, `storage_unreachable`, `environment_not_built`, `package_index_unreachable`,
    # `files_not_fetched`, `files_unreachable`, `files_no_room`, `cache_disk_full`, `cache_disk_failed`,
    # `not_prepared`, `state_disk_full`, `state_disk_failed`, `device_failed`
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
        """Possibly the consequence of another rank's end. A pipeline wraps the error, so the traceback counts, too."""
        if self.is_abort:
            return True
        return self.cause == "exception" and _has_sign(f"{self.message}\n{self.traceback or ''}")

    @property
    def is_lost_connection(self) -> bool:
        """Whether it is an exception of torch.distributed about a lost peer. Without a traceback the message decides.

        A connection of the user's own that fails, as to a server of data, is none: it would fail again.
        """
        if self.is_abort or not self.secondary:
            return False
        texts = (self.message, *(self.traceback or "").split(_TRACEBACK))
        return not self.traceback or any(_is_of_groups(text) for text in texts)

    @property
    def is_abort(self) -> bool:
        """Whether NCCL's watchdog has ended the trainer, since a collective did not end: an echo of a hang."""
        return self.cause == "hang" and self.message.startswith(ABORTED)

    @property
    def reason(self) -> str:
        """The reason of the final state. A lost connection counts as a machine fault if no primary cause was reported."""
        return "connection_lost" if self.is_lost_connection else self.cause

    @property
    def is_repairable(self) -> bool:
        """Whether the machines are to blame. A lost connection counts as a machine fault if no primary cause was reported."""
        return self.cause in REPAIRABLE or self.is_lost_connection

    @property
    def kind(self) -> tuple[bool, bool, bool]:
        """What the choice of a root cause looks at."""
        return self.secondary, self.is_lost_connection, self.is_abort

    def text(self) -> str:
        who = "" if self.rank is None else f"rank {self.rank}: "
        return who + self.message + (f"\n\n{self.traceback}" if self.traceback else "")


def is_redundant(failure: Failure, known: Iterable[Failure]) -> bool:
    """Whether a failure that follows the `known` ones can be no root cause, which is the first of its kind, nor show a lost node."""
    # Its node may be gone, too, unless its trainer reported an error of its own.
    if failure.rank is not None and failure.cause in REPAIRABLE and not failure.traceback:
        return False
    return any(not one.secondary or one.kind == failure.kind for one in known)


def raised(event: FailedEvent, rank: int | None, node: str | None) -> Failure:
    """The failure for a trainer's exception. Its `facts` may have the cause, the rank to blame, and evidence.

    A failed GPU is found by the words: the exception is raised wherever the code next waits for the GPU.
    """
    facts = event.facts
    message = event.message if facts.cause != "exception" else f"{event.type}: {event.message}"
    text = f"{message}\n{event.traceback}".lower()
    failed_device = facts.cause == "exception" and any(sign in text for sign in DEVICE_FAILED)
    cause = "device_failed" if failed_device else facts.cause
    known = {"ranks": facts.ranks, "parameter": facts.parameter, "parameters": facts.parameters, "agreed": facts.agreed}
    evidence = {name: sanitize(value) for name, value in known.items() if value is not None}
    return Failure(cause, rank, message, node, event.traceback, {"raised_in": event.step} | evidence)


def exited(rank: int, node: str | None, status: int | None, watchdog: str | None, log: Iterable[str] = ()) -> Failure:
    """The failure for a trainer that ended without an exception. `watchdog`: the line of NCCL's watchdog in its log, if there is one.
    `log`: its last lines.

    NCCL's watchdogs abort all trainers within seconds of each other. Which of them is reported first is chance, so none is named.
    """
    if status != -signal.SIGABRT or watchdog is None:
        return Failure("rank_lost", rank, ending(status) + _hint(status, log), node)
    message = f"{ABORTED} of rank {rank}: {watchdog}"
    if any(sign in watchdog.lower() for sign in PEER_GONE):
        return Failure("exception", rank, message, node)
    return Failure("hang", None, message)


def unforked(rank: int, node: str | None, reason: str) -> Failure:
    """The failure for a trainer that the node's fork server could not fork."""
    return Failure("rank_lost", rank, f"the node's fork server could not fork the trainer: {reason}", node)


def watchdog_line(lines: Iterable[str]) -> str | None:
    """The first line in which NCCL's watchdog says why it aborts the trainer; None if there is none."""
    return next((line.strip() for line in lines if any(sign in line.lower() for sign in TIMED_OUT + PEER_GONE)), None)


def brief(error: BaseException) -> str:
    """The error as one line, without Ray's wrapper."""
    error = getattr(error, "cause", None) or error
    name, text = type(error).__name__, str(error).strip()
    return f"{name}: {text.splitlines()[0]}" if text else f"{name} without a message"


def ending(status: int | None) -> str:
    """Text for a trainer's exit status."""
    if status is None:
        return "the node's fork server is gone, and the trainer with it"
    if status < 0:
        known = {one.value: one.name for one in signal.Signals}  # most real-time signals have no name
        return f"the trainer was killed by {known.get(-status, f'signal {-status}')}"
    return f"the trainer exited with status {status} without an exception"


def _has_sign(text: str) -> bool:
    lower = text.lower()
    return any(sign in lower for sign in SECONDARY)


def _is_of_groups(text: str) -> bool:
    """Whether one exception, as in a traceback, is of torch.distributed and says that a peer is gone."""
    frames = list(_FRAME.finditer(text))
    error = text[frames[-1].end() :] if frames else text
    within = bool(frames) and "/torch/distributed/" in frames[-1][1]
    return _has_sign(error) and (within or _OF_GROUPS.search(error.lower()) is not None)


def _hint(status: int | None, log: Iterable[str]) -> str:
    """A remedy for an abort that may have followed the work. Empty for other ends."""
    if status != -signal.SIGABRT or not any(TERMINATED in line for line in log):
        return ""
    remedy = "call torch.distributed.destroy_process_group() before it ends"
    return f": {TERMINATED}; if the program had done its work, {remedy}"
