"""Clocks between two measurements. Those of real ranks: tests/parity/test_step_trace.py."""

import pytest

from shardyard.strategies.telemetry.clock_sync import Aligned, Offset


def test_a_clock_that_drifts_is_right_at_both_ends_and_in_between() -> None:
    clock = Aligned(Offset(10.0, 1000.0, 2e-5), Offset(20.0, 1000.5, 3e-5))
    assert [clock.common(at) for at in (10.0, 15.0, 20.0)] == pytest.approx([1010.0, 1015.25, 1020.5])
    assert clock.error_s == 3e-5


def test_one_measurement_is_no_line() -> None:
    once = Offset(10.0, 1000.0, 1e-5)
    assert Aligned(once, once).common(12.0) == 1012.0
