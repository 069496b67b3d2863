"""Where the host may wait for the device while a rank trains, and why: the allow-list of the dry tests.

Waits of snapshots and checkpoints are no part of a step: threads of their own wait there (`tests/dry/test_race_detector.py`).
"""

from collections import Counter
from collections.abc import Iterable

from shardyard.workers.dry_run.report import HostSync, HostWait

#: A file of ours (empty: none is on the stack, as in a backward pass), and what the host waits for there.
Wait = tuple[str, HostWait]

STEP: dict[Wait, int] = {
    # The loss and the norm of the gradients, which every rank needs before it updates.
    ("strategies/grad_clip.py", "read from device"): 1,
    # The end of a step whose times are measured. The device got it after that read, when it had no other work.
    ("strategies/telemetry/device_clock.py", "event"): 1,
}
#: The host updates a bucket when its gradients have arrived, and reuses a buffer when its values have left.
OFFLOADED_OPTIMIZER: Wait = ("strategies/activation_memory/copy_lane.py", "event")
#: At the end of a block's backward pass FSDP2 waits for the gradients that go to the host.
OFFLOADED_PARAMETERS: Wait = ("", "event")


def waits(found: Iterable[HostSync]) -> dict[Wait, int]:
    """Place and kind → how many times the host waits."""
    counted: Counter[Wait] = Counter()
    for wait in found:
        counted[wait.line.partition(":")[0], wait.what] += wait.count
    return dict(counted)
