"""On CUDA a step that is not measured records no timed event: neither its time nor its device's is spent on them."""

import pytest
from harness.fake_device import FakeDevice

from shardyard.strategies.telemetry.step_sampling import COST

STEPS = 7
#: Steps that are probed: every 5th and the second.
PROBED = (2, 5)


@pytest.mark.full
def test_events_that_cost_little_are_recorded_in_every_step(device: FakeDevice) -> None:
    found = device.call("timed_events", COST / 10, STEPS)
    assert min(found) > 2, "a step of ZeRO-2 waits for its sums"


def test_events_that_cost_much_are_recorded_in_few_steps_and_in_those_that_are_probed(device: FakeDevice) -> None:
    """At 0.7% of a step, and half of the limit for a rank's own vote, one step of three."""
    found = device.call("timed_events", 1.4 * COST, STEPS)
    many = {step for step, count in enumerate(found, start=1) if count > 1}
    # The lap that ends a step takes the first moment of the next one.
    assert many == {1, 2, *(step for step in range(1, STEPS + 1) if step % 3 == 0), *PROBED}
    assert found[-1] == 0


def test_all_timed_events_are_on_the_stream_that_computes(device: FakeDevice) -> None:
    """The time between events of several streams is no time of a rank: waits that others' work hides would count as waits."""
    assert device.call("streams_of_timed_events") == ["the default stream"]
