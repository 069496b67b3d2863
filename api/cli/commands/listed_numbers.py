"""The column of `shardyard list` that has the number by which the jobs are sorted."""

import time
from collections.abc import Callable, Sequence

from ....service.schemas.job import Job
from ....service.schemas.job_order import OF_METRICS, Order, Sort
from ...client import Client
from ..terminal.screen import logged, seconds


def column(client: Client, jobs: Sequence[Job], sort: str) -> tuple[str, dict[str, str]] | None:
    """Its head, and its text by job. None: the jobs are not sorted by a number."""
    order = Sort.parse(sort)
    if order is None:
        return None
    if order.order == Order.DURATION:
        return "DURATION", _texts(jobs, _duration)
    if order.order == Order.DEVICE_TIME:
        return "DEVICE TIME", _texts(jobs, lambda job: job.device_s)
    if order.order not in OF_METRICS:
        return None
    found = (
        {one.job: one.values for one in client.logged_values([job.id for job in jobs], [order.metric])} if jobs else {}
    )
    name = {Order.METRIC: "last", Order.LOWEST: "lowest", Order.HIGHEST: "highest"}[order.order]
    numbers = {job: getattr(values[order.metric], name) for job, values in found.items() if order.metric in values}
    head = order.metric if order.order == Order.METRIC else f"{order.order} {order.metric}"
    return head, {job: "" if number is None else logged(number) for job, number in numbers.items()}


def _texts(jobs: Sequence[Job], number: Callable[[Job], float | None]) -> dict[str, str]:
    return {job.id: seconds(number(job)) or "" for job in jobs}


def _duration(job: Job) -> float | None:
    if job.started_at is None:
        return None
    ended = time.time() if job.finished_at is None else job.finished_at.timestamp()
    return max(0.0, ended - job.started_at.timestamp())
