"""Unix seconds, as databases and gangs have them, and moments in UTC, as the service gives them out."""

from datetime import UTC, datetime


def utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
