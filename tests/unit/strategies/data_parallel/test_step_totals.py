from shardyard.strategies.data_parallel.step_totals import StepTotals


def test_a_step_is_known_when_every_worker_has_pushed_it_and_is_returned_once() -> None:
    totals = StepTotals(3)
    for worker, steps in enumerate((3, 2, 1)):
        for clock in range(1, steps + 1):
            totals.add(clock, loss=float(10**worker), squares=float(clock))
    assert totals.take() == [(111.0, 1.0)]
    totals.add(2, loss=100.0, squares=5.0)
    assert totals.take() == [(111.0, 3.0)]
    assert totals.take() == []


def test_the_sum_does_not_depend_on_the_order() -> None:
    losses = [1e16, 1.0, -1e16]
    found = []
    for order in (losses, losses[::-1], [1.0, 1e16, -1e16]):
        totals = StepTotals(3)
        for loss in order:
            totals.add(1, loss, 0.0)
        found += totals.take()
    assert found == [(1.0, 0.0)] * 3
