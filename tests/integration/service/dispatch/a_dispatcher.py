"""A dispatcher as a process, on a cluster without Ray, until it is killed: `python a_dispatcher.py DATABASE FOLDER`.

It says when it has looked for dead dispatchers.
"""

import asyncio
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3])]

from integration.inprocess_cluster import InProcessCluster, run_until_stopped  # noqa: E402
from shardyard.service.dispatch.dispatcher import Dispatcher  # noqa: E402
from shardyard.service.settings import Settings  # noqa: E402
from shardyard.service.store.engine import Store  # noqa: E402


class Telling(Dispatcher):
    async def _reap(self) -> None:
        await super()._reap()
        print("looked", flush=True)


async def main(url: str, folder: str) -> None:
    settings = Settings(data_dir=Path(folder), poll_s=0.1, pull_s=0.3, nodes_s=0.2, lease_s=600.0)
    await Telling(Store(url), settings, InProcessCluster(cpus=1, script=run_until_stopped)).run()


asyncio.run(main(*sys.argv[1:]))
