from types import SimpleNamespace
from typing import Any

from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.restore_point import choose_restore_step, newest_common


def test_the_restore_point_is_the_newest_step_that_all_have() -> None:
    assert newest_common([[4, 5], [5, 6], [5]]) == 5
    assert newest_common([[4, 5], [4, 5], [5, 4]]) == 5
    assert newest_common([[4, 5], [6, 7]]) is None
    assert newest_common([[4, 5], []]) is None
    assert newest_common([[3]]) == 3


def members(*held: list[int]) -> list[Member]:
    """Ranks whose actors have snapshots of these steps, and no replicas."""
    found = []
    for rank, steps in enumerate(held):

        async def answer(steps: list[int] = steps) -> list[int]:
            return steps

        handle: Any = SimpleNamespace(snapshots=SimpleNamespace(steps=answer))
        found.append(Member(rank, handle=handle))
    return found


async def test_ranks_that_need_no_snapshot_do_not_hold_the_others_back() -> None:
    assert await choose_restore_step(members([4, 7], [1, 4], [4, 7])) == 4
    assert await choose_restore_step(members([4, 7], [1, 4], [4, 7]), dispensable=range(1, 2)) == 7
    assert await choose_restore_step(members([4, 7], [], [4, 7]), dispensable=range(1, 2)) == 7
    assert await choose_restore_step(members([4, 7], [4, 7], [1, 4]), dispensable=range(1, 2)) == 4
