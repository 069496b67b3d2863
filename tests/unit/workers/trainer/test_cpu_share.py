"""The threads of a node's ranks are at most its cores, whether ranks are bound to cores of their own or not."""

from pathlib import Path

import pytest

from shardyard.workers.trainer.cpu_share import RankCores, quota, threads_of


def of(node: str, *cores: int, quota: float | None = None) -> RankCores:
    return RankCores(node, frozenset(cores), quota)


def threads(*ranks: RankCores) -> list[int]:
    return [threads_of(rank, ranks) for rank in range(len(ranks))]


def test_ranks_of_a_node_divide_its_cores() -> None:
    assert threads(*[of("a", *range(8))] * 4) == [2] * 4
    assert threads(*[of("a", *range(8))] * 3) == [2] * 3
    assert threads(*[of("a", *range(8))] * 2, of("b", *range(6))) == [4, 4, 6]


def test_bound_ranks_use_all_of_their_cores() -> None:
    assert threads(of("a", 0, 1, 2), of("a", 3, 4, 5)) == [3, 3]


def test_only_shared_cores_are_divided() -> None:
    assert threads(of("a", 0, 1, 2, 3), of("a", 2, 3)) == [3, 1]


def test_each_rank_has_a_thread() -> None:
    assert threads(*[of("a", 0)] * 3) == [1] * 3


def test_a_quota_is_divided_between_the_ranks_of_its_node() -> None:
    assert threads(*[of("a", *range(16), quota=4.5)] * 2) == [2, 2]
    assert threads(*[of("a", *range(16), quota=0.5)] * 2) == [1, 1]


@pytest.mark.parametrize(("text", "expected"), [("max 100000\n", None), ("250000 100000\n", 2.5), ("", None)])
def test_the_quota_of_a_container(text: str, expected: float | None, tmp_path: Path) -> None:
    assert quota(tmp_path) is None
    file = tmp_path / "sys/fs/cgroup/cpu.max"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert quota(tmp_path) == expected
