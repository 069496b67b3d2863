from shardyard.strategies.data_parallel.step_totals import StepTotals, Total


def test_a_step_is_known_when_every_worker_has_pushed_it_and_is_returned_once() -> None:
    totals = StepTotals(3)
    for worker, steps in enumerate((3, 2, 1)):
        for clock in range(1, steps + 1):
            totals.add(clock, Total(10.0**worker, float(clock), worker + 1.0))
    assert totals.take() == [Total(111.0, 1.0, 2.0)]
    totals.add(2, Total(100.0, 5.0, 3.0))
    assert totals.take() == [Total(111.0, 3.0, 2.0)]
    assert totals.take() == []


def test_the_sum_does_not_depend_on_the_order() -> None:
    losses = [1e16, 1.0, -1e16]
    found = []
    for order in (losses, losses[::-1], [1.0, 1e16, -1e16]):
        totals = StepTotals(3)
        for loss in order:
            totals.add(1, Total(loss, 0.0, 1.0))
        found += totals.take()
    assert found == [Total(1.0, 0.0, 1.0)] * 3
