"""A node whose network is cut is dead for the others; what is left on it ends by itself, and nothing that it says is heard."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.network import Network
from harness.nodes import Nodes, running_nodes

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.settings import Settings

from .following import closed, follow, gone, is_step, pids
from .test_node_loss import LAYOUT, names_the_lost_node, places, reads_as_unbroken
from .test_repair import gate, train_gang, unbroken

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.full,
    pytest.mark.skipif(not Network.possible(), reason="network namespaces need root and `ip`"),
]


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Three nodes with room for two ranks each, in networks of their own."""
    with running_nodes([1, 1, 1], network=True) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def settings(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    data = tmp_path_factory.mktemp("data")
    return Settings(data_dir=data, ray_address=nodes.address, ray_auth_token_path=nodes.token, cpu_ranks_per_core=2)


async def test_a_cut_off_node_is_lost_and_its_ranks_end_themselves(
    cluster: Cluster, nodes: Nodes, tmp_path: Path
) -> None:
    whole = await unbroken(cluster, "whole", tmp_path / "whole", LAYOUT)
    broken = train_gang("broken", tmp_path / "broken", LAYOUT)
    held = gate(tmp_path / "broken", 5)
    await cluster.start_gang(broken)
    events = await follow(cluster, broken.name, until=is_step(5))
    _, before = await places(broken.name)
    lost = next(node for node in nodes.nodes[1:] if node.id in before)
    ranks = [rank for rank, node in enumerate(before) if node == lost.id]
    cut_off = [pids(tmp_path / "broken")[rank] for rank in ranks]
    nodes.cut_node(lost)
    held.unlink()
    events += await follow(cluster, broken.name, after=len(events))
    reads_as_unbroken(events, whole, tmp_path)
    names_the_lost_node(events, lost, ranks)
    assert await gone(cut_off, within_s=120), "a lease is 30 s"
    nodes.join_node(lost)
    await closed(cluster, broken.name, pids(tmp_path / "broken"))
