"""What a snapshot costs a step, by which ranks choose how often to take one.

Rules that it keeps: all ranks take snapshots after the same steps while they measure; the cost is what the steps lose, and not what the
copy takes.

On CUDA a copy engine works beside the kernels, so that a copy of a second may cost a step nothing. The cost is the difference between
steps with a copy in flight and steps without. It includes all waits, and what kernels and collectives lose to the copy.

On CPUs steps differ by more than a copy costs. A copy takes a core that some rank's step could have, and so its processor time counts.
"""

import time
from statistics import median
from typing import Final, Protocol

import torch

from .step_record import StepRecord

#: The share of a CPU rank's processor time that the copies may take: half of what snapshots may cost in all, as a copy also takes caches
#: and memory bandwidth from the step beside it. Where ranks share cores, a step's processor time is less than its length.
COPIES: Final = 0.01
#: The share by which snapshots may make steps longer.
LONGER: Final = 0.02
#: The minimum share of a step that counts as a rank's work. The rest it waits, or other processes have its core.
MOST_IDLE: Final = 0.1
#: Steps before a comparison: they allocate buffers, and map and pin both segments.
WARM: Final = 3
#: Steps of each kind that are compared.
COMPARED: Final = 5


class SnapshotCost(Protocol):
    """Measures for `steps` steps how often snapshots may be taken."""

    steps: int

    def gap(self, seen: int) -> int:
        """While it measures: the steps from the snapshot after step number `seen` to the next one."""
        ...

    def length(self, record: StepRecord) -> float:
        """Seconds of a step."""
        ...

    def add(self, step_s: float, copying: bool) -> None:
        """Add a step, during which a snapshot was copied or not."""
        ...

    def interval(self, copy_s: float, replication_s: float) -> float:
        """Minimum number of steps between two snapshots, whose copies take these seconds of processor time."""
        ...


class ProcessorTime:
    """The cost on CPUs."""

    steps = 3

    def __init__(self) -> None:
        self._at, self._work_s, self._step_s = time.process_time(), 0.0, 0.0

    def gap(self, seen: int) -> int:  # noqa: ARG002
        return 1

    def length(self, record: StepRecord) -> float:
        return record.seconds

    def add(self, step_s: float, copying: bool) -> None:  # noqa: ARG002
        now = time.process_time()
        self._at, self._work_s, self._step_s = now, now - self._at, step_s

    def interval(self, copy_s: float, replication_s: float) -> float:
        busy_s = max(min(self._work_s - copy_s, self._step_s), MOST_IDLE * self._step_s, 1e-9)
        return (copy_s + replication_s) / COPIES / busy_s


class StepTime:
    """The cost on CUDA: the median step with a copy in flight, less the median step without."""

    steps = WARM + 2 * COMPARED

    def __init__(self) -> None:
        self._seen = 0
        self._with: list[float] = []
        self._without: list[float] = []

    def gap(self, seen: int) -> int:
        return 1 if seen < WARM - 1 else 2

    def length(self, record: StepRecord) -> float:
        """From one meeting of all ranks to the next by the device's clock: the copy of the step before lies between them."""
        timing = record.stats.timing  # measured in all of the first steps (`step_sampling.py`)
        return record.seconds if timing is None else timing.busy_s + timing.wait_s

    def add(self, step_s: float, copying: bool) -> None:
        self._seen += 1
        if self._seen > WARM:
            (self._with if copying else self._without).append(step_s)

    def interval(self, copy_s: float, replication_s: float) -> float:  # noqa: ARG002
        plain_s = median(self._without)
        return (median(self._with) - plain_s) / LONGER / max(plain_s, 1e-9)


def cost_on(device: torch.device) -> SnapshotCost:
    return StepTime() if device.type == "cuda" else ProcessorTime()
