"""Shardyard runs distributed training jobs on Ray: a spec goes in, a gang of ranks trains it, and its history comes back.

The folders of the repository are the sub-packages: `api → service → workers → strategies`, imports never the other way.
"""

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .api.client import AsyncClient, Client
    from .workers.program.artifact_log import log_artifact, log_image, log_table
    from .workers.program.checkpoints import checkpoint, resume
    from .workers.program.metric_log import log

__all__ = [
    "AsyncClient",
    "Client",
    "__version__",
    "checkpoint",
    "log",
    "log_artifact",
    "log_image",
    "log_table",
    "resume",
]


def __getattr__(name: str) -> Any:
    """The clients are loaded when they are asked for, so that a trainer never imports an HTTP client.

    `log` and the like, `checkpoint` and `resume` are for programs.
    """
    if name in ("checkpoint", "resume"):
        from .workers.program import checkpoints

        return getattr(checkpoints, name)
    if name == "log":
        from .workers.program.metric_log import log

        return log
    if name in ("log_artifact", "log_image", "log_table"):
        from .workers.program import artifact_log

        return getattr(artifact_log, name)
    if name == "Client":
        from .api.client import Client

        return Client
    if name == "AsyncClient":
        from .api.client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'shardyard' has no attribute {name!r}")
