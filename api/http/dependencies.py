"""What a route may reach: the store, the settings, the hub of watchers, who may ask, and who is asking."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Header, Request

from ...service.jobs.spec_files import SpecFiles
from ...service.settings import Settings
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
    authenticator: Authenticator | None  # None: something in front of this server authenticates
    files: SpecFiles = field(default_factory=SpecFiles)

    def stir(self) -> None:
        """Jobs changed: a dispatcher in this process need not wait for its next look."""
        self.wake.set()


def _context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


def _actor(request: Request) -> str:
    """The name of who asks, as it stands in a job's story."""
    return str(request.state.actor.name)


In = Annotated[Context, Depends(_context)]
Actor = Annotated[str, Depends(_actor)]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Any text of your own. The same key and body have one effect and one answer, however often they are sent.",
    ),
]
