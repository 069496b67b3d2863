"""Ray keeps a row of a removed placement group, which costs its readers nothing here."""

import asyncio

import pytest
from harness.patience import PATIENCE_S

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.workers.supervisor.ranks.group_table import living_groups

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_removed_group_is_no_gang_and_stays_in_rays_table(cluster: Cluster) -> None:
    from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

    names = ["shardyard-lasting-1", "another-users", "shardyard-removed-1"]
    groups = [placement_group([{"CPU": 0.125}], name=name, lifetime="detached") for name in names]
    try:
        assert all(group.wait(PATIENCE_S) for group in groups)
        remove_placement_group(groups[2])
        async with asyncio.timeout(PATIENCE_S):
            while placement_group_table(groups[2])["state"] != "REMOVED":  # noqa: ASYNC110  (Ray reports no change)
                await asyncio.sleep(0.05)
        table = placement_group_table()
        found = {row["placement_group_id"]: row for row in living_groups()}
        assert found == {group: row for group, row in table.items() if row["state"] != "REMOVED"}
        assert {*names[:2]} <= {row["name"] for row in found.values()}
        assert names[2] in {row["name"] for row in table.values()}, "Ray forgets removed groups: drop group_table.py"
        assert {*names} & {*await cluster.gangs()} == {names[0]}
    finally:
        for group in groups:
            remove_placement_group(group)
