"""Parses a time as users type it: a duration before now, a time of today, a date, or unix seconds. Parses durations."""

import re
import time
from datetime import datetime

import typer

from ....service import durations

HOW = "10m (before now; s, m, h, d), 14:30, 2026-01-31T14:30, or unix seconds"


def parse_time(text: str, now: float | None = None) -> float:
    """Unix seconds. A time without a zone is local. Raises BadParameter."""
    now = time.time() if now is None else now
    if (ago := durations.seconds(text)) is not None:
        return max(0.0, now - ago)
    if re.fullmatch(r"\d{9,}(\.\d+)?", text):
        return float(text)
    of_today = re.fullmatch(r"(\d{1,2})(:\d{2}(?::\d{2})?)", text)
    if of_today:
        text = f"{datetime.fromtimestamp(now):%Y-%m-%d} {of_today[1]:0>2}{of_today[2]}"
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{text[:40]!r} is not a time: {HOW}.") from None


def duration(text: str) -> float:
    """Seconds of a duration above zero, such as `90s`, `30m`, `8h`. Raises BadParameter."""
    seconds = durations.seconds(text)
    if not seconds:
        raise typer.BadParameter(f"{text[:40]!r} is not a duration, such as 90s, 30m or 8h.")
    return seconds
