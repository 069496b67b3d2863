"""Dependencies of the routes: the store, the settings, the hub of watchers, the authenticator, and the request's actor."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Header
from starlette.requests import HTTPConnection

from ...service.jobs.code_archives import CodeStorage
from ...service.queries.storage_reads import StorageReads
from ...service.settings import Settings
from ...service.spec_files import SpecFiles
from ...service.store.engine import Store
from .authentication import Authenticator
from .watch_hub import Hub


@dataclass(frozen=True)
class Context:
    """One per app, at `app.state.context`."""

    store: Store
    settings: Settings
    hub: Hub
    wake: asyncio.Event
    authenticator: Authenticator | None  # None: a proxy in front of this server authenticates
    reads: StorageReads
    code: CodeStorage
    files: SpecFiles = field(default_factory=SpecFiles)

    def wake_dispatcher(self) -> None:
        """Wake a dispatcher in this process, because jobs changed: it need not wait for its next poll."""
        self.wake.set()


def _context(request: HTTPConnection) -> Context:
    found: Context = request.app.state.context
    return found


def _actor(request: HTTPConnection) -> str:
    """The actor's name, as it appears in a job's history."""
    return str(request.state.actor.name)


In = Annotated[Context, Depends(_context)]
Actor = Annotated[str, Depends(_actor)]


def idempotency_header(more: str = "") -> Any:
    """The header with an idempotency key; `more` follows in its description."""
    text = (
        "Any text of your own. The same key and body have one effect and one answer, even if they are sent repeatedly."
    )
    name, pattern = "Idempotency-Key", r"^[\x21-\x7e]+$"
    return Header(alias=name, min_length=1, max_length=255, pattern=pattern, description=text + more)


Key = Annotated[str | None, idempotency_header()]
