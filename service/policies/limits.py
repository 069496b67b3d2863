"""The limits by which the control plane handles failures: how long jobs wait, and when a node is to blame. An operator sets them."""

from dataclasses import dataclass, field

from .cordon import Limits
from .retry import Backoff


@dataclass(frozen=True)
class Rules:
    back_off: Backoff = field(default_factory=Backoff)
    cordon: Limits = field(default_factory=Limits)
