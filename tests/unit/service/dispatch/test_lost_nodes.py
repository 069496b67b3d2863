"""A thousand nodes that Ray lists as dead cost neither rows nor writes."""

import random
from typing import Any

from shardyard.service.dispatch.lost_nodes import KEPT, differ, kept


def node(name: str, now: float, *, alive: bool = False) -> dict[str, Any]:
    return {"id": name, "alive": alive, "seen_at": now, "gangs": []}


def looks(*listings: dict[str, bool]) -> list[list[Any]]:
    """What is stored after each look, each a second later; the listings, of `alive` by name, in no order."""
    stored: list[Any] = []
    after = []
    for second, listing in enumerate(listings, start=1):
        found = [node(name, float(second), alive=alive) for name, alive in listing.items()]
        random.Random(second).shuffle(found)
        stored = kept(found, stored)
        after.append(stored)
    return after


def test_of_many_lost_nodes_the_newest_are_kept_and_change_no_more() -> None:
    old = [f"old-{number}" for number in range(1000)]
    living = dict.fromkeys([*old, "a", "b"], True)
    gone = dict.fromkeys(old, False) | {"a": True}
    _, first, second, third, fourth = looks(
        living, gone | {"b": True}, gone | {"b": True}, gone | {"b": False}, gone | {"b": False}
    )
    assert len(first) == len(second) == KEPT + 2
    assert not differ(first, second) and differ(second, third) and not differ(third, fourth)
    lost = {row["id"]: row["seen_at"] for row in fourth if not row["alive"]}
    assert len(lost) == KEPT and lost.pop("b") == 3.0 and {*lost.values()} == {1.0}, "when they were last seen alive"
    assert lost.items() <= {row["id"]: row["seen_at"] for row in second}.items(), (
        "those that are kept are always the same"
    )


def test_a_node_that_was_always_dead_is_none() -> None:
    assert looks({"a": False}, {"a": False}) == [[], []]


def test_a_node_that_is_back_is_stored_as_living() -> None:
    _, lost, back = looks({"a": True}, {"a": False}, {"a": True})
    assert [(row["alive"], row["seen_at"]) for row in (*lost, *back)] == [(False, 1.0), (True, 3.0)]
