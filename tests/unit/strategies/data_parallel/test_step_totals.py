from shardyard.strategies.data_parallel.step_totals import StepTotals, Total


def test_a_step_is_known_when_every_worker_has_pushed_it_and_is_returned_once() -> None:
    totals = StepTotals(3)
    for worker, steps in enumerate((3, 2, 1)):
        for clock in range(1, steps + 1):
            totals.add(clock, worker, Total(10.0**worker, float(clock), worker + 1.0))
    assert totals.take() == [Total(111.0, 1.0, 2.0)]
    totals.add(2, 2, Total(100.0, 5.0, 3.0))
    assert totals.take() == [Total(111.0, 3.0, 2.0)]
    assert totals.take() == []


def test_a_step_without_a_worker_that_is_gone_is_the_mean_of_the_others() -> None:
    totals = StepTotals(3)
    for worker, steps in enumerate((2, 3, 1)):
        for clock in range(1, steps + 1):
            totals.add(clock, worker, Total(worker + 1.0, 4.0, 3.0))
    assert totals.take() == [Total(6.0, 4.0, 3.0)]
    totals.leave(2)
    assert totals.take() == [Total(3.0 * 3 / 2, 4.0, 2.0)], "half as many again, at two thirds of the speed"
    totals.add(3, 0, Total(1.0, 4.0, 3.0))
    assert totals.take() == [Total(4.5, 4.0, 2.0)]


def test_what_a_worker_did_before_it_was_gone_counts() -> None:
    totals = StepTotals(2)
    totals.add(1, 1, Total(5.0, 2.0, 1.0))
    totals.leave(1)
    totals.add(1, 0, Total(7.0, 4.0, 1.0))
    assert totals.take() == [Total(12.0, 3.0, 1.0)]


def test_the_sum_does_not_depend_on_the_order() -> None:
    losses = [1e16, 1.0, -1e16]
    found = []
    for order in (losses, losses[::-1], [1.0, 1e16, -1e16]):
        totals = StepTotals(3)
        for worker, loss in enumerate(order):
            totals.add(1, worker, Total(loss, 0.0, 1.0))
        found += totals.take()
    assert found == [Total(1.0, 0.0, 1.0)] * 3
