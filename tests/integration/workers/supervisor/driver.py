"""A control plane to kill: starts a gang (or finds it), and prints the number of each event that it takes."""

import asyncio
import sys
from pathlib import Path

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.settings import Settings
from shardyard.workers.messages.gang_spec import GangSpec


async def main(data_dir: str, gang: str) -> None:
    cluster = Cluster(Settings(data_dir=Path(data_dir)), entry="entries:work")
    await cluster.connect()
    await cluster.start_gang(GangSpec(gang, {"steps": 100_000, "pause": 0.02}, 2, 1, "cpu"))
    after = 0
    while True:
        for event in (await cluster.pull(gang, after, 5.0)).events:
            after = event["seq"]
            step = event["data"].get("step", 0)
            print(after, step, flush=True)


asyncio.run(main(*sys.argv[1:]))
