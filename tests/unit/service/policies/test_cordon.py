import itertools

import pytest

from shardyard.service.policies.cordon import Cordon, Limits, due, format_causes, is_last, spared
from shardyard.service.policies.queue import Device

CPU: frozenset[Device] = frozenset({"cpu"})
BOTH: frozenset[Device] = frozenset({"cpu", "cuda"})
NONE: frozenset[Device] = frozenset()


def test_cordons_double_up_to_a_bound() -> None:
    limits = Limits(first_s=10.0, max_s=60.0)
    assert [limits.lasts_s(before) for before in range(5)] == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert limits.lasts_s(10**6) == 60.0


def test_enough_faults_are_due() -> None:
    assert [due(Limits(faults=3), "abcdefghi"[:faults], "") for faults in (0, 2, 3, 9)] == [False, False, True, True]
    assert not due(Limits(faults=0), "abc", "")
    assert (
        format_causes(["hang", "rank_lost", "hang"], Limits()) == "3 faults of machines within 60 min (hang, rank_lost)"
    )


@pytest.mark.parametrize(
    ("limit", "owners", "cordons"),
    [(3, "aaaa", False), (3, "aab", True), (3, "aaaab", True), (2, "aa", False), (2, "ab", True), (1, "a", True)],
)
def test_one_job_with_faults_on_several_nodes_cordons_one_only_if_one_fault_does(
    limit: int, owners: str, cordons: bool
) -> None:
    assert due(Limits(faults=limit), owners, "ab") is cordons
    assert due(Limits(faults=limit), owners, "c") is (len(owners) >= limit), "all of its faults are on one node"


@pytest.mark.parametrize(
    ("nodes", "cordoned", "last"),
    [
        ({"a": CPU}, {}, True),
        ({"a": CPU, "b": CPU}, {}, False),
        ({"a": CPU, "b": CPU}, {"b"}, True),
        ({"a": BOTH, "b": CPU}, {}, True),
        ({"a": CPU, "head": NONE}, {}, True),
        ({"a": NONE, "b": CPU}, {}, False),
        ({"b": CPU}, {}, False),  # a is dead
    ],
)
def test_the_last_of_a_kind(nodes: dict[str, frozenset[Device]], cordoned: set[str], last: bool) -> None:
    assert is_last("a", nodes, cordoned) is last


def test_of_nodes_that_are_all_cordoned_the_first_that_is_free_again_stays_in_use() -> None:
    cordons = {"a": Cordon(30.0, False), "b": Cordon(20.0, False)}
    assert spared({"a": CPU, "b": CPU, "head": NONE}, cordons) == ["b"]
    assert spared({"a": CPU, "b": CPU, "c": CPU}, cordons) == []
    assert spared({"a": BOTH, "b": CPU, "c": CPU}, cordons) == ["a"]


def test_nothing_overrules_an_operator() -> None:
    assert spared({"a": CPU}, {"a": Cordon(None, True)}) == []
    assert spared({"a": CPU, "b": CPU}, {"a": Cordon(None, True), "b": Cordon(9.0, False)}) == ["b"]


def test_faults_alone_never_take_the_last_device_of_a_kind() -> None:
    """Every cluster of three nodes, of every kind, cordoned or not."""
    each = list(itertools.product((NONE, CPU, BOTH), (None, Cordon(10.0, False), Cordon(20.0, False))))
    for cluster in itertools.product(each, repeat=3):
        nodes = {name: kinds for name, (kinds, _) in zip("abc", cluster, strict=True)}
        held = {name: cordon for name, (_, cordon) in zip("abc", cluster, strict=True) if cordon is not None}
        kept = spared(nodes, held)
        in_use = [kinds for name, kinds in nodes.items() if name not in held or name in kept]
        assert frozenset().union(*in_use) == frozenset().union(*nodes.values())
        assert len(kept) <= 2 and set(kept) <= held.keys()
