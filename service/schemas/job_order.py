"""Orders of a list of jobs, as users write them: `name`, `-duration` for the longest first, `-highest.acc`."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self


class Order(StrEnum):
    """What a list of jobs is sorted by. Each order has an index, so every page costs the same."""

    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"
    STATE = "state"
    DURATION = "duration"
    DEVICE_TIME = "device_time"
    METRIC = "metric"
    LOWEST = "lowest"
    HIGHEST = "highest"


#: Orders by a number of a logged metric, whose name follows.
OF_METRICS: Final = (Order.METRIC, Order.LOWEST, Order.HIGHEST)
#: Orders by a number, which not every job has.
BY_NUMBER: Final = (Order.DURATION, Order.DEVICE_TIME, *OF_METRICS)

_BOTH_WAYS = "|".join((Order.NAME, Order.STATE, Order.DURATION, Order.DEVICE_TIME))
#: The text of a `Sort`, also as the API's description has it.
PATTERN: Final = rf"^(newest|oldest|-?({_BOTH_WAYS})|-?({'|'.join(OF_METRICS)})\.[^\u0000]{{1,200}})$"
#: What a user can write, for the help and for errors.
SORTS: Final = (
    "newest, oldest, name, state, duration, device_time, metric.NAME, lowest.NAME or highest.NAME; "
    "with - before it for the largest first, as in -device_time or -highest.acc"
)


@dataclass(frozen=True)
class Sort:
    """An order, and its direction. `metric`: the name of the metric, in an order by one."""

    order: Order = Order.NEWEST
    descending: bool = False
    metric: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for a text that is no order."""
        if re.fullmatch(PATTERN, text) is None:
            return None
        order, _, metric = text.removeprefix("-").partition(".")
        return cls(Order(order), text.startswith("-"), metric)
