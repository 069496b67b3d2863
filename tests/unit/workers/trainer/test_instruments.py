import pytest
import torch

from shardyard.strategies.telemetry.current import current
from shardyard.strategies.telemetry.device_clock import HostClock
from shardyard.workers.trainer.instruments import Instruments

CPU = torch.device("cpu")


def test_a_phase_of_a_step_is_a_span_of_its_trace_and_else_nothing() -> None:
    instruments = Instruments()
    tracer = instruments.telemetry.tracer
    assert instruments.phase("batch") is instruments.phase("norm")
    tracer.begin(HostClock(), {})
    with instruments.phase("update"):
        pass
    with instruments.phase("snapshot"):
        pass
    assert [(s.name, s.category) for s in tracer.end().spans] == [("update", "optimizer"), ("snapshot", "other")]
    assert instruments.heartbeat.phase == "start"


def test_a_phase_with_a_step_is_the_heartbeats_until_it_ends() -> None:
    instruments = Instruments()
    heartbeat = instruments.heartbeat
    heartbeat.update("step", 3)
    with instruments.phase("checkpoint", 4):
        assert (heartbeat.phase, heartbeat.step) == ("checkpoint", 4)
    assert (heartbeat.phase, heartbeat.step) == ("step", 3)
    with pytest.raises(OSError, match="full"), instruments.phase("checkpoint", 4):
        raise OSError("the disk is full")
    assert (heartbeat.phase, heartbeat.step) == ("checkpoint", 4), "where it failed"


def test_what_is_no_part_of_a_step_is_neither_busy_nor_wait_time() -> None:
    instruments = Instruments()
    clock = instruments.telemetry.clock
    with instruments.installed(CPU):
        assert current() is instruments.telemetry
        with instruments.phase("validation", 1):
            clock.end_step()
            with clock.waiting:
                pass
            timing = clock.end_step()
        assert (timing.busy_s, timing.wait_s) == (0, 0)
        with instruments.phase("checkpoint", 1), clock.waiting:
            pass
        timing = clock.end_step()
    assert timing.busy_s > 0 and timing.wait_s > 0
    assert current() is not instruments.telemetry
