from shardyard.workers.supervisor.policies.repair_budget import BACKOFF_S, MAX_IDLE, RepairBudget


def test_a_gang_is_repaired_as_often_as_allowed() -> None:
    budget = RepairBudget(3)
    assert budget.is_left
    assert [budget.allows(True, step) for step in (5, 10, 15, 20)] == [True, True, True, False]
    assert not budget.is_left


def test_faults_of_the_training_code_are_never_repaired() -> None:
    assert not RepairBudget(3).allows(False, 5)


def test_repairs_without_a_new_step_wait_longer_and_then_end() -> None:
    budget = RepairBudget(100)
    waits = []
    while budget.allows(True, 7):
        waits.append(budget.backoff_s)
    assert waits == list(BACKOFF_S[:MAX_IDLE])
    assert not RepairBudget.from_state(100, budget.to_state()).allows(True, 7), "a restarted supervisor counts on"
    again = RepairBudget(100)
    assert all(again.allows(True, step) and again.backoff_s == 0 for step in range(50))
