"""What strategies report to: one telemetry per process, on every thread."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from torch.futures import Future

from shardyard.strategies.telemetry.current import Telemetry, current, done_at, installed, now, wait_on
from shardyard.strategies.telemetry.device_clock import HostClock


def test_it_is_the_same_on_all_threads_and_gone_afterwards() -> None:
    before, mine = current(), Telemetry()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(current).result() is before
        with suppress(ZeroDivisionError), installed(mine):
            assert current() is mine and other.submit(current).result() is mine
            _ = 1 / 0
        assert current() is before and other.submit(current).result() is before


def test_a_wait_that_fails_has_ended() -> None:
    telemetry = Telemetry()
    clock = telemetry.clock
    with installed(telemetry), clock.running(HostClock()):
        with suppress(ZeroDivisionError), clock.waiting, clock.busy:
            wait_on(lambda: 1 / 0, "nothing")
        before = clock.end_step()
        assert before.busy_s > 0 and before.wait_s > 0
        assert wait_on(lambda: "result", "nothing") == "result"
        after = clock.end_step()
    assert after.busy_s > 0 and after.wait_s > 0


def test_waits_are_spans_of_the_step_that_is_traced() -> None:
    telemetry = Telemetry()
    assert now() is None
    with installed(telemetry):
        telemetry.tracer.begin(HostClock(), {"7": "data"})
        assert wait_on(lambda: "result", "all_reduce", "7", now()) == "result"
        spans = telemetry.tracer.end().spans
        assert wait_on(lambda: "result", "all_reduce", "7", now()) == "result"
    assert [(span.lane, span.name) for span in spans] == [("training", "all_reduce data"), ("data", "all_reduce")]
    assert not telemetry.tracer.end().spans


def test_without_one_nothing_is_recorded() -> None:
    assert wait_on(lambda: "result", "nothing") == "result"
    assert current().clock.end_step().wait_s == 0 and not current().tracer.on


class UnderWay:
    """A collective under way, until its future has a result."""

    def __init__(self) -> None:
        self.future: Future[None] = Future()

    def get_future(self) -> "Future[None]":
        return self.future


def test_when_work_on_a_cpu_is_done_is_known() -> None:
    telemetry = Telemetry()
    with installed(telemetry):
        assert done_at(UnderWay())() is None  # nothing is traced
        telemetry.tracer.begin(HostClock(), {})
        work, since = UnderWay(), now()
        done = done_at(work)
        assert done() is None
        work.future.set_result(None)
        until = now()
        assert since <= done() <= until
        assert wait_on(lambda: "result", "all_to_all", "7", since, done) == "result"
        (background,) = (span for span in telemetry.tracer.end().spans if span.lane == "7")
        assert background.end - background.start == pytest.approx(done() - since)


def test_when_a_devices_work_is_done_is_not_known() -> None:
    class Events:
        def now(self) -> float:
            return 0.0

    telemetry, work = Telemetry(), UnderWay()
    with installed(telemetry):
        telemetry.tracer.begin(Events(), {})
        done = done_at(work)
        work.future.set_result(None)
        assert done() is None
