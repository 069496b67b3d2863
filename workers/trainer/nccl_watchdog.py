"""torch's NCCL watchdog and its flight recorder, set up so that the supervisor's verdict on a hang comes first. Before the first group.

The watchdog aborts a trainer whose collective does not end within the group's time limit. Another thread aborts it if the watchdog makes
no progress for TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, 8 minutes by default. What the operator has set in the node's environment stays.
"""

import math
from collections.abc import MutableMapping
from typing import Final

HEARTBEAT: Final = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
#: Both name the recorder's size; the second one is its older name.
SIZES: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
#: Operations that the recorder keeps; torch's 2000 are fewer than a host may enqueue in one step of many layers and micro-batches.
RECORDED: Final = 20_000


def set_up(timeout_s: float, env: MutableMapping[str, str]) -> None:
    """`timeout_s`: the time limit of the groups."""
    if not env.get(HEARTBEAT):
        env[HEARTBEAT] = str(math.ceil(timeout_s))
    if not any(env.get(name) for name in SIZES):
        env[SIZES[0]] = str(RECORDED)
