"""Formats a job's events as lines of text: one per event, none for events that only update the live view."""

import shlex
from typing import Any

from ....workers.messages.event_text import format_bubble, format_preflight
from ....workers.messages.exec_request import GATE
from ...client import Event
from .screen import clock, loss, number

#: Why the service changed the layout of an elastic job.
_RESHARD = {"no_room": "no room for more", "devices_free": "devices are free"}


def remark(event: Event) -> str | None:
    """One line with its time of day; None for an event without a line."""
    text = _text(event.kind, event.data)
    return None if text is None else f"{clock(event.ts)} · {text}"


def log_line(rank: int, text: str, of: int | None) -> str:
    """A log line as it is printed where the lines are those of the rank `of`; None: of several ranks, so each names its rank."""
    return text if of is not None else f"[rank {rank}] {text}"


def _text(kind: str, data: dict[str, Any]) -> str | None:
    match kind:
        case "state" if data.get("state") != "failed":  # the reason of a failure is printed at the end
            # An exception's message continues with its traceback.
            reason = str(data.get("message") or "").partition("\n")[0]
            return " · ".join(filter(None, [data.get("state"), reason]))
        case "eval":
            beside = f" (unigram loss: {data['unigram_loss']:.4f})" if data.get("unigram_loss") else ""
            return f"validation at step {data.get('step')}: {loss(data.get('loss'))}{beside}"
        case "probe" if "bubble_measured" in data:
            return f"step {data.get('step')}: {format_bubble(data)}"
        case "checkpoint":
            return f"checkpoint of step {data.get('step')}: {data.get('path')}"
        case "export":
            return f"Hugging Face model of step {data.get('step')}: {data.get('path')}"
        case "incident":
            what = str(data.get("message") or "").partition("\n")[0]
            return f"incident: {data.get('cause')} {what}".rstrip()
        case "cordon":
            return f"node {str(data.get('node'))[:12]}: {data.get('message')}"
        case "reshard":
            why = f" ({_RESHARD.get(data['reason'], data['reason'])})" if data.get("reason") else ""
            return f"runs as {data.get('after')} instead of {data.get('before')}{why}"
        case "fault":
            return _fault(data)
        case "profile":
            return _profile(data)
        case "exec":
            return _exec(data)
        case "trace_finished":
            first, last = data.get("steps") or (None, None)
            of = f" of steps {first} to {last}" if data.get("done") else f" failed: {data.get('message')}"
            return f"trace {data.get('id')}{of}, requested by {data.get('asked_by')}"
        case "files":
            return "files: " + ", ".join(
                f"{one.get('target')} from {one.get('source')}" for one in data.get("files") or ()
            )
        case "plan":
            return f"{number(data.get('parameters'))} parameters · {data.get('layout')} · {data.get('batch')}"
    return format_preflight(data) if kind == "preflight" else None


def _profile(data: dict[str, Any]) -> str:
    """A requested profile: its kind, its rank, and its file or why there is none."""
    result = data["file"]["name"] if data.get("file") else f"failed: {data.get('message')}"
    return f"{data.get('profile')} profile of rank {data.get('rank')}, requested by {data.get('asked_by')}: {result}"


def _exec(data: dict[str, Any]) -> str:
    """A command that ran beside a rank: who ran it, and its exit status. Of a gate: who opened the first stream."""
    if tuple(data.get("command", ()))[:1] == (GATE,):
        return f"streams to rank {data.get('rank')}, first opened by {data.get('asked_by')}: {data.get('message')}"
    command = shlex.join(data.get("command", ()))
    return f"{command[:80]} beside rank {data.get('rank')}, run by {data.get('asked_by')}: {data.get('message')}"


def _fault(data: dict[str, Any]) -> str:
    """A requested fault: its kind, its rank, and what was done."""
    rank = "" if data.get("rank") is None else f" {data['rank']}"
    prefix = "" if data.get("done") else "not injected: "
    return f"fault {data.get('fault')}{rank}, requested by {data.get('asked_by')}: {prefix}{data.get('message')}"
