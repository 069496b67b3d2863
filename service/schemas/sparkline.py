"""Loss sparklines of many jobs."""

from .base import Value


class LossSparkline(Value):
    """A job's loss in at most 64 buckets: the lowest and highest of each. Bucket i covers steps i · width + 1 to (i + 1) · width."""

    job: str
    width: int
    low: list[float | None]
    high: list[float | None]


class LossSparklines(Value):
    """Loss sparklines of the jobs that have recorded a step."""

    items: list[LossSparkline]
