"""torch's NCCL watchdog is set up, and what the operator has set stays."""

import pytest

from shardyard.workers.trainer.nccl_watchdog import set_up

HEARTBEAT, SIZE, OLD_SIZE = (
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_FR_BUFFER_SIZE",
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {HEARTBEAT: "3601", SIZE: "20000"}),
        ({HEARTBEAT: "60", SIZE: "100"}, {HEARTBEAT: "60", SIZE: "100"}),
        ({HEARTBEAT: "", OLD_SIZE: "50"}, {HEARTBEAT: "3601", OLD_SIZE: "50"}),
    ],
)
def test_what_is_not_set_is_set(before: dict[str, str], after: dict[str, str]) -> None:
    set_up(3600.5, before)
    assert before == after
