"""What the control plane goes by when jobs break: how long they wait, and when a node is to blame. An operator sets it."""

from dataclasses import dataclass, field

from .budget import BackOff
from .cordon import Limits


@dataclass(frozen=True)
class Rules:
    back_off: BackOff = field(default_factory=BackOff)
    cordon: Limits = field(default_factory=Limits)
