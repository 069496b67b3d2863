from dataclasses import replace
from typing import Any

from pytest import MonkeyPatch

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.policies.topology import Place
from shardyard.workers.supervisor.ranks import room as rooms
from shardyard.workers.supervisor.ranks.room import (
    Choice,
    choose_nodes,
    chosen,
    image_of,
    place_of,
    room,
    used_by_others,
)

GANG = GangSpec("shardyard-a-1", {}, 8, 4, "cuda")


def node(name: str, gpus: float, domain: str = "", alive: bool = True, **labels: str) -> dict[str, Any]:
    """A row of `ray.nodes()`."""
    known = {"ray.io/node-id": name} | ({"ray.io/gpu-domain": domain} if domain else {}) | labels
    return {"NodeID": name, "Alive": alive, "Resources": {"GPU": gpus, "CPU": 8.0} if gpus else {}, "Labels": known}


def group(name: str, bundles: dict[int, float], where: dict[int, str]) -> dict[str, Any]:
    """A row of Ray's table of placement groups."""
    sizes = {bundle: {"GPU": gpus} for bundle, gpus in bundles.items()}
    return {"name": name, "bundles": sizes, "bundles_to_node_id": where}


def test_a_nodes_room_is_what_no_other_gang_holds() -> None:
    others = [
        group("shardyard-b-1", {0: 2.0, 1: 2.0}, {0: "n", 1: "m"}),
        group("shardyard-a-1", {0: 4.0}, {0: "n"}),
    ]
    used = used_by_others(others, "shardyard-a-1")
    assert used["n"] == {"GPU": 2.0}
    assert room(node("n", 8), GANG, used["n"]).bundles == 1
    assert room(node("n", 8), GANG, {}).bundles == 2
    assert [room(node("n", 7), GANG, {}).bundles, room(node("n", 7), GANG, {}).rest] == [1, 3], "three for spares"
    assert room(node("n", 0), GANG, {}).bundles == 0
    assert room(node("n", 8), replace(GANG, tensor=1, cpus_per_gpu=3.0), {"CPU": 1.0}).bundles == 2, "by its 8 cores"
    on_cpus = replace(GANG, device="cpu", tensor=1, cpus_per_rank=0.1)
    assert room(node("n", 8), on_cpus, {"CPU": 7.0}).bundles == 10


def test_a_place_is_read_from_rays_labels() -> None:
    labels = {"ray.io/availability-zone": "east", "shardyard.io/rail": "su-1"}
    assert place_of(node("n", 8, "rack-1", **labels)) == Place("east", "su-1", "rack-1")
    assert place_of({"NodeID": "n"}) == Place()


def test_nodes_with_room_now_are_chosen_before_those_whose_gang_must_end_first() -> None:
    nodes = [node("n", 8, "a"), node("m", 8, "b")]
    at = {"ray.io/gpu-domain": "b"}
    held = group("shardyard-b-1", {0: 4.0}, {0: "n"})
    assert chosen(GANG, nodes, [held]) == Choice([at, at])
    full = group("shardyard-c-1", {0: 4.0}, {0: "m"})
    crowded = chosen(GANG, nodes, [held, full])
    assert crowded.selectors == [{"ray.io/gpu-domain": "a"}, {"ray.io/gpu-domain": "b"}], "two domains, but at once"
    assert chosen(replace(GANG, within="domain"), nodes, [held, full]) == Choice([{"ray.io/gpu-domain": "a"}] * 2)


def test_dead_and_avoided_nodes_are_not_chosen() -> None:
    nodes = [node("n", 8, "a", alive=False), node("m", 8, "b"), node("o", 8, "c")]
    assert chosen(replace(GANG, avoided=("m",)), nodes, []).selectors == [{}, {}], "only one node is left"
    assert chosen(GANG, nodes, []).selectors[0] == {"ray.io/gpu-domain": "b"}


def test_a_gang_gets_nodes_of_its_image_alone() -> None:
    nodes = [
        node("n", 8),
        node("m", 8, **{"shardyard.io/image": "nemo"}),
        node("o", 8, **{"shardyard.io/image": "dev"}),
    ]
    assert [image_of(one) for one in nodes] == ["", "nemo", "dev"]
    own, named = {"shardyard.io/image": "!in(dev,nemo)"}, {"shardyard.io/image": "nemo"}
    assert chosen(GANG, nodes, []) == Choice([own, own])
    assert chosen(replace(GANG, image="nemo"), nodes, []) == Choice([named, named])
    assert chosen(replace(GANG, image="gone"), nodes, []) == Choice([{"shardyard.io/image": "gone"}] * 2), (
        "they may come"
    )
    assert chosen(replace(GANG, world_size=16), nodes, []) == Choice([own] * 4), "it waits for nodes of the own image"
    assert chosen(GANG, nodes[:1], []) == Choice([{}, {}]), "without other images no label is asked for"


def test_images_of_nodes_that_are_away_are_avoided_too() -> None:
    """Ray could move a bundle to a node that joins later."""
    nodes = [node("n", 8), node("m", 8, **{"shardyard.io/image": "nemo"})]
    asked = replace(GANG, other_images=("dev", "nemo"))
    assert chosen(asked, nodes, []).selectors == [{"shardyard.io/image": "!in(dev,nemo)"}] * 2
    assert chosen(asked, nodes[:1], []).selectors == [{"shardyard.io/image": "!in(dev,nemo)"}] * 2
    assert chosen(replace(asked, world_size=16), nodes, []).selectors == [{"shardyard.io/image": "!in(dev,nemo)"}] * 4


def test_only_nodes_of_its_image_say_in_which_labels_they_differ() -> None:
    nodes = [node("n", 8, "a"), node("m", 8, "b", **{"shardyard.io/image": "nemo"})]
    assert chosen(GANG, nodes, []).selectors == [{"shardyard.io/image": "!in(nemo)"}] * 2


def test_spares_keep_away_from_nodes_of_another_model_that_are_too_small_for_a_tensor_group() -> None:
    h100, l4 = ({"ray.io/accelerator-type": model} for model in ("H100", "L4"))
    nodes = [node("n", 8, **h100), node("m", 8, **h100), node("o", 1, **l4)]
    assert chosen(GANG, nodes, []).selectors == [{}, {}], "no bundle fits there"
    assert chosen(replace(GANG, spares=1), nodes, []).selectors == [h100, h100]


def test_a_required_domain_without_room_is_not_possible_yet() -> None:
    nodes = [node("n", 4, "a"), node("m", 4, "b")]
    assert chosen(replace(GANG, within="domain"), nodes, []) == Choice(possible=False)
    assert chosen(GANG, nodes[:1], []) == Choice([{}, {}]), "nodes may still come"


def test_only_groups_that_live_are_read_and_none_where_all_nodes_are_alike(monkeypatch: MonkeyPatch) -> None:
    import ray

    reads: list[str] = []

    def living() -> list[dict[str, Any]]:
        reads.append("groups")
        return [group("another-users", {0: 8.0}, {0: "n"})]

    nodes = [node("n", 8, "a"), node("m", 8, "b")]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(rooms, "living_groups", living)
    assert choose_nodes(GANG).selectors == [{"ray.io/gpu-domain": "b"}] * 2 and reads == ["groups"]
    nodes = [node("n", 8), node("m", 8)]
    assert choose_nodes(GANG) == Choice([{}, {}]) and reads == ["groups"]
