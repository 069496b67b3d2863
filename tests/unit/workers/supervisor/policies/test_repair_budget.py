from shardyard.workers.supervisor.policies.repair_budget import BACK_OFF_S, MOST_IDLE, Budget, agreed


def test_ranks_agree_on_the_newest_step_that_all_have() -> None:
    assert agreed([[4, 5], [5, 6], [5]]) == 5
    assert agreed([[4, 5], [4, 5], [5, 4]]) == 5
    assert agreed([[4, 5], [6, 7]]) is None
    assert agreed([[4, 5], []]) is None
    assert agreed([[3]]) == 3


def test_a_gang_is_repaired_as_often_as_allowed() -> None:
    budget = Budget(3)
    assert [budget.allows(True, step) for step in (5, 10, 15, 20)] == [True, True, True, False]


def test_faults_of_the_training_code_are_never_repaired() -> None:
    assert not Budget(3).allows(False, 5)


def test_repairs_without_a_new_step_wait_longer_and_then_end() -> None:
    budget = Budget(100)
    waits = []
    while budget.allows(True, 7):
        waits.append(budget.back_off_s)
    assert waits == list(BACK_OFF_S[:MOST_IDLE])
    assert not Budget.from_state(100, budget.to_state()).allows(True, 7), "a restarted supervisor counts on"
    again = Budget(100)
    assert all(again.allows(True, step) and again.back_off_s == 0 for step in range(50))
