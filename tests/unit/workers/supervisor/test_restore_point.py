from shardyard.workers.supervisor.restore_point import newest_common


def test_the_restore_point_is_the_newest_step_that_all_have() -> None:
    assert newest_common([[4, 5], [5, 6], [5]]) == 5
    assert newest_common([[4, 5], [4, 5], [5, 4]]) == 5
    assert newest_common([[4, 5], [6, 7]]) is None
    assert newest_common([[4, 5], []]) is None
    assert newest_common([[3]]) == 3
