"""Formats a rank's events as lines of text: the same in a gang's logs and under torchrun."""

import json
from typing import Any


def format_event(kind: str, data: dict[str, Any]) -> str | None:
    """One line for an event of rank 0; None if the event needs none. One that has no such line is JSON: no text ends a training."""
    try:
        return _line(kind, data)
    except (LookupError, TypeError, ValueError):
        return f"{kind}: {json.dumps(data)}"


def _line(kind: str, data: dict[str, Any]) -> str | None:
    match kind:
        case "preflight":
            return format_preflight(data)
        case "plan":
            return _plan(data)
        case "step" if "loss" in data:
            speed = f"lr {data['lr']:.2e}  {data['tokens_per_s']:,.0f} tokens/s"
            skipped = "  skipped" if data["skipped"] else ""
            return f"step {data['step']:>6}  loss {_number(data['loss'], '.6f')}  {speed}{skipped}"
        case "eval":
            unigram = data["unigram_loss"]
            beside = "" if unigram is None else f"  (unigram loss {unigram:.4f})"
            line = f"step {data['step']:>6}  validation loss {_number(data['loss'], '.4f')}{beside}"
            if "balance_loss" not in data:
                return line
            balance, dropped = _number(data["balance_loss"], ".3f"), _number(data["dropped"], ".1%")
            return f"{line}  experts' balance {balance} (1 is even), {dropped} dropped"
        case "probe" if "bubble_measured" in data:
            return f"step {data['step']:>6}  {format_bubble(data)}"
        case "checkpoint" if not data.get("again"):
            took = f"{data['bytes']:,} bytes in {data['seconds']:.2f} s, training paused for {data['held_s']:.2f} s"
            return f"step {data['step']:>6}  saved {data['path']} ({took})"
        case "export":
            return (
                f"step {data['step']:>6}  exported {data['path']} ({data['bytes']:,} bytes in {data['seconds']:.2f} s)"
            )
        case "incident":
            return f"{data['cause']}: {data['message']}"
    return None


def _number(value: float | None, spec: str) -> str:
    """The number by a format specification. None is one that was not finite, which JSON does not have."""
    return "not finite" if value is None else format(value, spec)


def _plan(data: dict[str, Any]) -> str:
    """What a gang trains. On GPUs with the reasons of what the spec left to the devices."""
    precision = f" in {data['precision']}" if data.get("precision") else ""
    compiled = ", compiled" if data.get("compile") else ""
    sizes = f"{data['layout']}; {data['batch']}; {data['parameters']:,} parameters"
    line = f"{sizes} on {data['device']}{precision}{compiled}"
    reasons = data.get("choices") if data["device"] != "cpu" else None
    return " ".join([f"{line}.", *reasons]) if reasons else line


def format_preflight(preflight: dict[str, Any]) -> str:
    """The all-reduce over each group, and what is slow."""
    speeds = ", ".join(
        f"{one['bus_bandwidth'] / 1e9:.3g} GB/s over {one['axis']} ({one['ranks']} ranks)"
        for one in preflight["speeds"]
        if one["collective"] == "all_reduce"
    )
    slow = [one["message"] for one in preflight.get("slow") or ()]
    return " ".join([f"pre-flight in {preflight['seconds']:.1f} s: all-reduce {speeds}.", *slow])


def format_bubble(probe: dict[str, Any]) -> str:
    """The measured and the simulated pipeline bubble as text."""
    measured = probe["bubble_measured"]
    over = f"({measured['min']:.1%} to {measured['max']:.1%} over ranks)"
    return f"pipeline bubble {measured['mean']:.1%} {over}, {probe['bubble_simulated']:.1%} with free messages"
