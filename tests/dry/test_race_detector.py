"""Streams, events and the host on the fake device: the detector finds small races, and the code that trains has none."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.dry_run import DryRunner
from harness.fake_device import FakeDevice, OnFakeDevice

from shardyard.workers.dry_run.race_detector import RaceDetector

PROGRAMS = (
    "read_on_another_stream",
    "overwrite_what_another_stream_reads",
    "an_event_recorded_too_early",
    "read_a_copy_on_the_host",
    "overwrite_what_is_copied_to_the_device",
    "hand_out_memory_that_another_stream_reads",
    "hand_out_memory_before_the_other_stream_is_done",
    "read_before_a_collective_is_waited_for",
    "overwrite_what_a_collective_sends",
    "overwrite_what_is_sent",
    "read_a_functional_collective",
    "read_what_a_thread_copies",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_race_is_found_and_its_ordered_twin_passes(program: str, device: FakeDevice) -> None:
    device.call("small", program, True)
    with pytest.raises(OnFakeDevice, match=r"Race: .*stream_cases\.py:\d+ .*stream_cases\.py:\d+"):
        device.call("small", program, False)


def test_what_blocks_orders(device: FakeDevice) -> None:
    device.call("waits_of_the_host")


def test_each_wait_of_the_host_is_counted_by_its_kind(device: FakeDevice) -> None:
    """But for events that are known to be over."""
    expected = {"read from device": 1, "copy to device": 1, "copy to host": 1, "event": 2, "stream": 1, "device": 1}
    assert device.call("counted_waits") == expected


@pytest.mark.parametrize("without", ["", "wait_event", "synchronize", "settle"])
def test_a_snapshot_is_copied_after_its_step_and_before_the_next_update(without: str, device: FakeDevice) -> None:
    _races_only_if(without, device, "snapshots")


@pytest.mark.parametrize("without", ["", "wait_stream", "synchronize", "settle", "join"])
def test_a_checkpoint_is_copied_after_its_step_and_before_the_next_update(without: str, device: FakeDevice) -> None:
    _races_only_if(without, device, "checkpoints")


def _races_only_if(without: str, device: FakeDevice, case: str) -> None:
    if without:
        with pytest.raises(OnFakeDevice, match="Race: "):
            device.call(case, without)
    else:
        device.call(case, "")


@pytest.mark.parametrize("without", ["wait_stream", "wait_event", "synchronize"])
def test_without_one_of_its_waits_an_optimizer_on_the_host_races(without: str, device: FakeDevice) -> None:
    _races_only_if(without, device, "offloaded_optimizer")


def test_an_optimizer_on_the_host_waits_for_the_buckets_alone(device: FakeDevice) -> None:
    """For each bucket's gradients, and for the buffer of its values; never for a stream, and so for what other code has given to it."""
    assert device.call("offloaded_optimizer", "") <= 3 * 5 * 2


@pytest.mark.parametrize("without", ["", "wait_stream", "wait_event", "free", "take", "give"])
def test_offloaded_activations_are_there_when_they_are_read(without: str, device: FakeDevice) -> None:
    _races_only_if(without, device, "offloaded_activations")


@pytest.mark.parametrize("without", [pytest.param("", marks=pytest.mark.full), "wait"])
def test_gradients_that_a_last_pass_reduces_are_waited_for(without: str, device: FakeDevice) -> None:
    _races_only_if(without, device, "reductions_in_last_passes")


def test_replicas_of_state_on_the_host_and_on_the_device_are_compared(device: FakeDevice) -> None:
    device.call("replicas_of_offloaded_state")


@pytest.mark.full
def test_replicas_get_restored_slices_that_are_on_the_host(device: FakeDevice) -> None:
    device.call("restored_shares_of_offloaded_state")


#: In half precision every layout of the grid is run under the detector: see test_layouts.py.
STEPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "offloaded-optimizer-zero1": ({"data": 2, "zero": 1}, {"offload": {"optimizer": 0.5}}),
    "zero1-fp32": ({"data": 4, "zero": 1}, {"precision": "fp32"}),
    "zero2-fp32": ({"data": 4, "zero": 2, "micro_batch": 2}, {"precision": "fp32"}),
    "zero3-fp32": ({"data": 4, "zero": 3, "micro_batch": 2}, {"precision": "fp32"}),
}


@pytest.mark.full
@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_no_races(name: str, dry: DryRunner) -> None:
    layout, changes = STEPS[name]
    dry.report(layout, races=True, **changes)


def test_operators_of_two_threads_run_one_after_the_other() -> None:
    """FakeTensorMode says by one field for all threads whether it is inside of a kernel."""
    together = threading.Barrier(2, timeout=0.5)

    def kernel() -> None:
        together.wait()  # until the other thread is in its kernel, too

    detector = RaceDetector()
    with ThreadPoolExecutor(2) as threads:
        met = [threads.submit(detector.run, kernel, (), {}) for _ in range(2)]
    assert all(isinstance(one.exception(), threading.BrokenBarrierError) for one in met)
