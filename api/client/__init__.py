"""The Python client: every call of the HTTP API as a typed method. Imports no server code, no torch, no Ray."""

from ._async.client import AsyncClient
from ._sync.client import Client
from ._sync.job import JobHandle
from .transport import FINAL, ApiError, Event, Unreachable, WaitTimeout, find_url

__all__ = [
    "FINAL",
    "ApiError",
    "AsyncClient",
    "Client",
    "Event",
    "JobHandle",
    "Unreachable",
    "WaitTimeout",
    "find_url",
]
