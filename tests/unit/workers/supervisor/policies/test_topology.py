import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.policies.topology import (
    NodeRoom,
    Part,
    Place,
    by_place,
    choose,
    natural,
    selectors,
)


def gang(ranks: int, tensor: int = 1, *neighbours: int, gpu: str = "") -> GangSpec:
    return GangSpec("shardyard-a-1", {}, ranks, tensor, "cuda", gpu=gpu, neighbours=neighbours)


def rack(name: str, nodes: int, bundles: int, zone: str = "", model: str = "H100") -> list[NodeRoom]:
    """Nodes of one NVLink domain, each with room for this many bundles."""
    return [NodeRoom(f"{zone}{name}-{i}", bundles, model, Place(zone=zone, domain=name)) for i in range(nodes)]


def shares(parts: list[Part] | None) -> list[tuple[str, str, int]] | None:
    return None if parts is None else [(part.place.zone, part.place.domain, part.bundles) for part in parts]


def test_a_gang_that_fits_one_domain_takes_the_smallest_that_has_room() -> None:
    nodes = [*rack("a", 4, 4), *rack("b", 2, 4), *rack("c", 1, 4)]
    assert shares(choose(nodes, gang(8))) == [("", "b", 8)]
    assert shares(choose(nodes, gang(9))) == [("", "a", 9)]


def test_a_larger_gang_takes_as_few_domains_as_possible() -> None:
    nodes = [*rack("a", 1, 4), *rack("b", 4, 4), *rack("c", 1, 4), *rack("d", 2, 4)]
    assert shares(choose(nodes, gang(20))) == [("", "a", 4), ("", "b", 16)]
    assert shares(choose(nodes, gang(33))) is None


def test_pipeline_stages_are_not_cut_where_that_costs_no_further_domain() -> None:
    nodes = [*rack("a", 3, 2), *rack("b", 3, 2)]
    assert shares(choose(nodes, gang(8))) == [("", "a", 6), ("", "b", 2)]
    assert shares(choose(nodes, gang(8, 1, 4))) == [("", "a", 4), ("", "b", 4)]
    assert shares(choose(nodes, gang(12, 1, 4))) == [("", "a", 6), ("", "b", 6)], "no unit fits: as few domains still"


def test_domains_follow_each_other_by_the_numbers_in_their_names() -> None:
    nodes = [*rack("rack-10", 1, 4), *rack("rack-9", 1, 4), *rack("rack-2", 1, 4)]
    assert [domain for _, domain, _ in shares(choose(nodes, gang(12))) or ()] == ["rack-2", "rack-9", "rack-10"]
    assert natural("rack-2") < natural("rack-10") and natural("") < natural("a")


def test_zones_are_not_mixed_if_one_has_room() -> None:
    nodes = [*rack("a", 1, 8, "east"), *rack("b", 2, 3, "west"), *rack("c", 2, 3, "west")]
    assert shares(choose(nodes, gang(12))) == [("west", "b", 6), ("west", "c", 6)]
    assert shares(choose(nodes, gang(16))) == [("east", "a", 4), ("west", "b", 6), ("west", "c", 6)]
    assert shares(choose(nodes, gang(8))) == [("east", "a", 8)], "one domain counts more than the smaller zone"


def test_rails_come_between_zones_and_domains() -> None:
    nodes = [NodeRoom(f"{rail}{i}", 8, "", Place(rail=rail)) for rail in ("r1", "r2") for i in range(2)]
    (part,) = choose(nodes, gang(16)) or ()
    assert part.place.rail == "r1" and part.bundles == 16


def test_gpus_of_two_models_are_mixed_only_if_the_spec_says_so() -> None:
    nodes = [*rack("a", 1, 8, model="A100"), *rack("b", 1, 8, model="H100")]
    assert choose(nodes, gang(16)) is None
    assert shares(choose(nodes, gang(16, gpu="mixed"))) == [("", "a", 8), ("", "b", 8)]
    assert shares(choose(nodes, gang(8, gpu="h100"))) == [("", "b", 8)]
    assert choose(nodes, gang(8, gpu="L4")) is None


@pytest.mark.parametrize(("within", "ranks", "found"), [("domain", 8, "b"), ("domain", 9, None), ("zone", 12, "bc")])
def test_a_required_zone_or_domain_is_not_left(within: str, ranks: int, found: str | None) -> None:
    nodes = [*rack("b", 2, 4, "west"), *rack("c", 1, 4, "west"), *rack("d", 1, 4, "east"), NodeRoom("x", 64, "H100")]
    asked = replace(gang(ranks), within=within)
    parts = choose(nodes, asked)
    assert (None if parts is None else "".join(part.place.domain for part in parts)) == found


def test_the_model_that_is_chosen_has_room_for_the_spares() -> None:
    nodes = [*rack("a", 1, 8, model="A100"), *rack("b", 2, 8, model="H100")]
    asked = gang(8)
    assert [[part.model for part in choose(nodes, replace(asked, spares=n)) or ()] for n in (0, 1, 8, 9)] == [
        ["A100"],
        ["H100"],
        ["H100"],
        [],
    ]
    odd = [NodeRoom("x", 1, "A100", rest=1), NodeRoom("y", 2, "H100")]  # of tensor groups, with a GPU over
    named = replace(gang(4, 4, gpu="A100"), spares=1)
    assert shares(choose(odd, named)) == [("", "", 1)] and choose(odd, replace(named, spares=2)) is None


def test_a_required_domain_has_room_for_the_spares() -> None:
    nodes = [*rack("a", 2, 4, "east"), *rack("b", 3, 4, "west")]
    assert shares(choose(nodes, gang(8))) == [("east", "a", 8)]
    inside = replace(gang(8), within="domain", spares=1)
    assert shares(choose(nodes, inside)) == [("west", "b", 8)]
    assert choose(nodes, replace(inside, spares=5)) is None, "five more are in the other domain only"
    anywhere = [*nodes, *rack("c", 1, 4, "east")]
    assert shares(choose(anywhere, replace(inside, within="zone"))) == [("east", "a", 8)], "the zone has one more rack"


def test_only_labels_by_which_nodes_differ_select() -> None:
    nodes = [*rack("a", 1, 4, "east"), *rack("b", 1, 4, "east")]
    asked = gang(16, 2, 8)
    found = selectors(choose(nodes, asked), nodes, asked)
    assert found == [{"ray.io/gpu-domain": "a"}] * 4 + [{"ray.io/gpu-domain": "b"}] * 4
    alike = rack("a", 2, 4, "east")
    assert selectors(choose(alike, gang(8)), alike, gang(8)) == [{}] * 8
    named = gang(8, gpu="h100")
    assert selectors(choose(alike, named), alike, named)[0] == {"ray.io/accelerator-type": "H100"}
    assert selectors(None, alike, gang(2, gpu="L4")) == [{"ray.io/accelerator-type": "L4"}] * 2
    other = [*alike, *rack("a", 1, 1, "east", model="A100")]
    assert selectors(choose(other, gang(8)), other, gang(8))[0] == {"ray.io/accelerator-type": "H100"}


def test_bundles_lie_side_by_side_by_zone_domain_and_node() -> None:
    places = {"n1": Place(domain="d2"), "n2": Place(domain="d1"), "n3": Place(domain="d10")}
    where = {0: "n3", 1: "n1", 2: "n2", 3: "n1", 4: "n2"}
    assert by_place(range(5), where.get, places) == [2, 4, 1, 3, 0]
    assert by_place(range(5), where.get, {}) == [1, 3, 2, 4, 0], "without labels, by node as before"


fleets = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 5)), min_size=1, max_size=8)


@given(fleets, st.integers(1, 12), st.sampled_from([(), (2,), (6, 2), (4,)]), st.randoms())
def test_no_placement_uses_fewer_domains(
    fleet: list[tuple[str, int]], groups: int, units: tuple[int, ...], order: random.Random
) -> None:
    """Against every choice of domains. A bundle is a whole tensor group on one node, so no group crosses a domain."""
    nodes = [NodeRoom(str(i), room, "", Place(domain=domain)) for i, (domain, room) in enumerate(fleet)]
    room = {domain: sum(size for one, size in fleet if one == domain) for domain, _ in fleet}
    sets = [chosen for size in range(1, len(room) + 1) for chosen in combinations(room, size)]
    enough = [len(chosen) for chosen in sets if sum(room[domain] for domain in chosen) >= groups]
    asked = gang(groups * 4, 4, *(4 * unit for unit in units))
    parts = choose(nodes, asked)
    shuffled = order.sample(nodes, len(nodes))
    assert shares(choose(shuffled, asked)) == shares(parts), "the order of the nodes must not matter"
    if not enough:
        assert parts is None
        return
    assert parts is not None and sum(part.bundles for part in parts) == groups and len(parts) == min(enough)
    assert all(0 < part.bundles <= room[part.place.domain] for part in parts)
    borders = [sum(part.bundles for part in parts[:i]) for i in range(1, len(parts))]
    for unit in (unit for unit in units if groups % unit == 0 and unit < groups):
        whole = sorted((size // unit * unit for size in room.values()), reverse=True)
        if sum(whole[: len(parts)]) >= groups:
            assert all(border % unit == 0 for border in borders)
            break


def test_ten_thousand_nodes_are_placed_with_a_few_looks_at_each() -> None:
    """Counted, not timed: the number of labels that are read grows with the nodes only."""
    nodes = [node for i in range(556) for node in rack(f"rack-{i}", 18, 4, f"zone-{i % 3}")]
    parts = choose(nodes, gang(36000, 4, 9000))
    assert parts is not None and sum(part.bundles for part in parts) == 9000
