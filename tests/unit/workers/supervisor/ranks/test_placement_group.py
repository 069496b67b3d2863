from collections.abc import Iterator
from typing import Any, Literal

import pytest

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.rank.actor import Rank
from shardyard.workers.supervisor.ranks import placement_group
from shardyard.workers.supervisor.ranks.placement_group import (
    elsewhere,
    label_selectors,
    make_actor,
    placement,
    rank_name,
    rearranged,
    spare_name,
)


@pytest.mark.parametrize(
    ("tensor", "device", "bundles"),
    [
        (1, "cpu", [{"CPU": 0.25}] * 4),
        (2, "cpu", [{"CPU": 0.5}] * 2),
        (4, "cuda", [{"GPU": 4.0}]),
    ],
)
def test_a_tensor_group_is_one_bundle(tensor: int, device: str, bundles: list[dict[str, float]]) -> None:
    assert placement(GangSpec("shardyard-a-1", {}, 4, tensor, device)) == bundles


def test_a_rank_on_a_gpu_reserves_the_cores_that_its_job_asks_for() -> None:
    asked = GangSpec("shardyard-a-1", {}, 4, 2, "cuda", cpus_per_gpu=6.0)
    assert placement(asked) == [{"GPU": 2.0, "CPU": 12.0}] * 2


def test_a_spare_is_a_bundle_of_one_device() -> None:
    assert placement(GangSpec("shardyard-a-1", {}, 4, 2, "cuda", spares=1)) == [
        {"GPU": 2.0},
        {"GPU": 2.0},
        {"GPU": 1.0},
    ]


ANYWHERE = {"shardyard.io/image": "nemo", "ray.io/accelerator-type": "H100"}
IN_A_ZONE = ANYWHERE | {"ray.io/availability-zone": "east"}
IN_A_DOMAIN = IN_A_ZONE | {"ray.io/gpu-domain": "a"}


@pytest.mark.parametrize(
    ("within", "spares"),
    [(None, ANYWHERE), ("zone", IN_A_ZONE), ("domain", IN_A_DOMAIN)],
)
def test_spares_of_a_gang_within_a_domain_are_in_it(
    within: Literal["zone", "domain"] | None, spares: dict[str, str]
) -> None:
    """Any bundle of a gang without tensor groups may be a rank's."""
    asked = GangSpec("shardyard-a-1", {}, 2, device="cuda", within=within, spares=2, avoided=("bad",))
    away = elsewhere(["bad"])
    assert label_selectors(asked, [IN_A_DOMAIN] * 2) == [IN_A_DOMAIN | away] * 2 + [spares | away] * 2


def test_ranks_and_spares_are_named_after_their_gang() -> None:
    assert rank_name("shardyard-a-1", 3) == "shardyard-a-1-rank-3"
    assert spare_name("shardyard-a-1", "0f").startswith("shardyard-a-1-rank-")


def test_a_bundle_that_keeps_away_from_nodes_says_so_in_rays_words() -> None:
    assert elsewhere(["aa"]) == {"ray.io/node-id": "!in(aa)"}
    assert elsewhere(["aa", "bb"]) == {"ray.io/node-id": "!in(aa,bb)"}


def test_bundles_that_were_placed_again_go_to_neighbours_and_the_others_stay() -> None:
    nodes = {0: "d", 1: "a", 2: "c", 3: "d", 4: "c"}
    assert rearranged(1, [1, 0, 2, 3, 4], [1, 2, 3, 4], nodes) == [1, 2, 4, 0, 3]
    assert rearranged(1, [1, 0, 2, 3, 4], [], nodes) == [1, 0, 2, 3, 4]


def test_a_tensor_group_that_is_not_lost_whole_keeps_its_bundle() -> None:
    nodes = {0: "b", 1: "a", 2: "a"}
    assert rearranged(2, [0, 1, 2], [0, 2, 3], nodes) == [0, 1, 2]
    assert rearranged(2, [0, 1, 2], [0, 1, 2, 3], nodes) == [1, 0, 2]


class ActorClass:
    """What `ray.remote` makes of a class. Ray's head keeps each of which an actor was made."""

    def __init__(self, made_of: Any) -> None:
        self.made_of = made_of
        self.names: list[str] = []

    def options(self, name: str, **_: Any) -> "ActorClass":
        self.names.append(name)
        return self

    def remote(self, *_: Any) -> Any:
        return self


@pytest.fixture
def no_actor_class() -> Iterator[None]:
    placement_group._actor_class.cache_clear()
    yield
    placement_group._actor_class.cache_clear()


@pytest.mark.usefixtures("no_actor_class")
def test_all_actors_are_of_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's head keeps each class for days, and looks at all that it keeps when it is asked for a list of keys."""
    import ray

    classes: list[ActorClass] = []

    def remote(made_of: Any) -> ActorClass:
        classes.append(ActorClass(made_of))
        return classes[-1]

    monkeypatch.setattr(ray, "remote", remote)
    for rank in range(4):
        make_actor(GangSpec("shardyard-a-1", {}, 4), object(), rank, f"rank-{rank}")
    [made] = classes
    assert made.made_of is Rank and made.names == [f"rank-{rank}" for rank in range(4)]
