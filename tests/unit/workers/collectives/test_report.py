"""Bandwidths as nccl-tests defines them, and who is slow."""

from itertools import combinations

import pytest

from shardyard.workers.collectives.report import COLLECTIVES, Finding, Link, Report, Speed, size_text, table


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("all_reduce", 2 * 3 / 4),
        ("reduce_scatter", 3 / 4),
        ("all_gather", 3 / 4),
        ("all_to_all", 3 / 4),
        ("send_recv", 1.0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(collective: str, factor: float) -> None:
    speed = Speed("world", collective, 4, 1 << 20, (0.002, 0.001, 0.004))
    assert speed.algorithm_bandwidth == (1 << 20) / 0.002
    assert speed.bus_bandwidth == pytest.approx(speed.algorithm_bandwidth * factor)
    assert speed.spread == 4.0 and collective in COLLECTIVES


def report(slow: set[frozenset[str]], nodes: str = "abcd", slow_rate: float = 1e8) -> Report:
    links = [
        Link((one, two), (nodes[one], nodes[two]), 1, slow_rate if frozenset((nodes[one], nodes[two])) in slow else 1e9)
        for one, two in combinations(range(len(nodes)), 2)
    ]
    return Report("gloo", len(nodes), tuple(nodes), (), tuple(links))


def test_a_slow_link_is_named_by_its_ends() -> None:
    found = report({frozenset("bc")})
    assert found.slow_nodes == () and [link.ranks for link in found.slow_links] == [(1, 2)]
    assert found.findings() == [
        Finding(1, "The link of rank 1 on b and rank 2 on c is slow: 0.1 GB/s; the median link has 1 GB/s.")
    ]


def test_a_node_all_of_whose_links_are_slow_is_named_instead_of_them() -> None:
    found = report({frozenset(("d", other)) for other in "abce"}, nodes="abcde")
    assert (found.slow_nodes, found.slow_links) == (("d",), ())
    assert found.findings() == [Finding(3, "Node d is slow: 0.1 GB/s to the others; their median link has 1 GB/s.")]


@pytest.mark.parametrize("nodes", ["abc", "abcd"])
def test_a_slow_node_of_few_is_found_though_its_links_are_half_of_all_or_more(nodes: str) -> None:
    found = report({frozenset(("c", other)) for other in nodes if other != "c"}, nodes, slow_rate=4e8)
    assert (found.slow_nodes, found.slow_links) == (("c",), ())
    assert found.findings() == [Finding(2, "Node c is slow: 0.4 GB/s to the others; their median link has 1 GB/s.")]


def test_equal_links_and_too_few_of_them_are_no_finding() -> None:
    assert report(set()).findings() == []
    assert report({frozenset("ab")}, nodes="ab").findings() == []


def test_the_report_as_json_has_a_table() -> None:
    speed = Speed("world", "all_reduce", 4, 1 << 20, (0.001, 0.001, 0.002))
    content = Report("gloo", 4, ("a",), (speed,), ()).to_json()
    assert content["speeds"][0]["bus_bandwidth"] == pytest.approx(1.5 * 2**20 / 0.001)
    assert table(content)[1] == ("world", "4", "all_reduce", "1 MiB", "1 ms", "1.05 GB/s", "1.57 GB/s", "2.00")
    assert [size_text(size) for size in (4, 65_536, 3 << 19, 1 << 30)] == ["4 B", "64 KiB", "1.5 MiB", "1 GiB"]
