"""Gangs on a real Ray cluster whose nodes have labels: each is placed in one NVLink domain, on GPUs of one model, on nodes of its image.

No rank runs.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from harness.nodes import Nodes

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.settings import Settings
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.ranks.placement import Placement
from shardyard.workers.supervisor.ranks.placement_group import bundle_nodes, remove_actors_and_group
from shardyard.workers.supervisor.ranks.room import node_places
from shardyard.workers.supervisor.ranks.spares import Spares, share_out

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full, pytest.mark.timeout(600)]

DOMAINS = {1: "rack-10", 2: "rack-9", 3: "rack-10", 4: "rack-1", 5: "rack-2"}
GPUS = {1: 2, 2: 4, 3: 2, 4: 2, 5: 8}
MODELS = {4: "A100"}
IMAGES = {5: ",shardyard.io/image=nemo"}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A head, a domain of two nodes, one of one node with as many GPUs, a node with another model, and one with another image."""
    nodes = Nodes()
    nodes.gpus = GPUS
    nodes.labels = {
        number: f"ray.io/gpu-domain={domain},ray.io/accelerator-type={MODELS.get(number, 'H100')}{IMAGES.get(number, '')}"
        for number, domain in DOMAINS.items()
    }
    try:
        nodes.start(1)
        nodes.add_nodes([1] * len(DOMAINS))
        yield nodes
    finally:
        nodes.end()


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def joined(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    data = tmp_path_factory.mktemp("data")
    cluster = Cluster(Settings(data_dir=data, ray_address=nodes.address, ray_auth_token_path=Path(nodes.token)))
    await cluster.connect()
    yield cluster
    await cluster.disconnect()


def gang(
    name: str, ranks: int, tensor: int = 1, gpu: str = "", neighbours: tuple[int, ...] = (), image: str = ""
) -> GangSpec:
    return GangSpec(f"shardyard-{name}-1", {}, ranks, tensor, "cuda", gpu=gpu, neighbours=neighbours, image=image)


async def settled() -> None:
    """Meant for the journal, which these gangs have none of."""


async def place(spec: GangSpec) -> list[str]:
    """Reserve as a supervisor does; returns the domain of each tensor group, in the order of ranks."""
    placement = Placement(spec, Spares(spec, settled), lambda: False)
    assert await placement.place()
    where = await asyncio.to_thread(bundle_nodes, placement.group)
    places = await asyncio.to_thread(node_places)
    groups, _ = share_out(spec, where, places)
    return [places[where[bundle]].domain for bundle in groups]


@pytest.fixture(autouse=True)
def removed() -> Iterator[list[str]]:
    yield (names := ["a", "b", "c"])
    for name in names:
        remove_actors_and_group(f"shardyard-{name}-1", [])


async def test_two_gangs_that_choose_at_once_both_get_a_domain_of_their_own(joined: Cluster) -> None:
    found = await asyncio.gather(place(gang("a", 4, 2)), place(gang("b", 4, 2)))
    assert sorted(found) == [["rack-10"] * 2, ["rack-9"] * 2]


async def test_a_larger_gang_lies_over_neighbouring_domains_and_never_on_another_model() -> None:
    assert await place(gang("a", 8, 2, neighbours=(4,))) == ["rack-9"] * 2 + ["rack-10"] * 2


async def test_a_gang_is_placed_on_the_model_that_it_names() -> None:
    assert await place(gang("a", 2, gpu="a100")) == ["rack-1"] * 2


async def test_nodes_report_their_labels(joined: Cluster) -> None:
    found = {node.domain: (node.gpu_model, node.image) for node in await joined.nodes() if node.gpu}
    h100 = ("H100", "")
    assert found == {"rack-1": ("A100", ""), "rack-9": h100, "rack-10": h100, "rack-2": ("H100", "nemo")}


async def test_a_gang_with_an_image_gets_its_nodes_and_no_other_gang_does(joined: Cluster) -> None:
    assert await place(gang("a", 4, image="nemo")) == ["rack-2"] * 4
    assert "rack-2" not in await place(gang("b", 8, 2)), "its four free GPUs would have left one domain uncut"
    spare = replace(gang("c", 2, image="nemo"), spares=2)
    assert await place(spare) == ["rack-2"] * 2, "with its spares"


async def test_a_gang_that_must_be_in_one_domain_gets_one_with_room(joined: Cluster) -> None:
    held = gang("a", 2, gpu="H100")
    (first, _) = await place(held)
    waiting = asyncio.create_task(place(replace(gang("b", 4), within="domain")))
    (other,) = {"rack-9", "rack-10"} - {first}
    assert await waiting == [other] * 4
