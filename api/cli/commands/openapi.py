"""Prints the API's description: `python -m shardyard.api.cli.commands.openapi`. Needs neither a database nor a cluster."""

import asyncio
import json
import sys
from typing import Any

from ....service.settings import Settings
from ....service.store.engine import Store
from ...app import create_app
from ...openapi import document


async def _of_this_version() -> dict[str, Any]:
    settings = Settings(host="127.0.0.1")
    store = Store(settings.database)  # which is never opened
    try:
        return document(create_app(settings, store))
    finally:
        await store.close()


if __name__ == "__main__":
    json.dump(asyncio.run(_of_this_version()), sys.stdout, indent=1)
