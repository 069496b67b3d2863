"""A dispatcher to kill: it looks after whatever is in the database."""

import asyncio
import sys

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.settings import Settings
from shardyard.service.store.engine import Store


async def main(given: str) -> None:
    settings = Settings.model_validate_json(given)
    await Dispatcher(Store(settings.database), settings, Cluster(settings)).run()


asyncio.run(main(*sys.argv[1:]))
