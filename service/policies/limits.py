"""The limits by which the control plane handles failures: how long jobs wait, and when a node is to blame. An operator sets them."""

from dataclasses import dataclass, field

from .cordon import Limits
from .retry import Backoff


@dataclass(frozen=True)
class ArtifactLimits:
    """How large files may be that programs log, and how many of them a job may have."""

    file_bytes: int = 1 << 30
    bytes: int = 20 << 30
    files: int = 10_000


@dataclass(frozen=True)
class Rules:
    backoff: Backoff = field(default_factory=Backoff)
    cordon: Limits = field(default_factory=Limits)
    artifacts: ArtifactLimits = field(default_factory=ArtifactLimits)
