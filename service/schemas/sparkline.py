"""The loss of many jobs at a glance."""

from .base import Value


class Outline(Value):
    """A job's loss in at most 64 buckets, bucket i of the steps from i · width + 1 to (i + 1) · width; extremes stay."""

    job: str
    width: int
    low: list[float | None]
    high: list[float | None]


class Outlines(Value):
    """Those of the jobs that told a step."""

    items: list[Outline]
