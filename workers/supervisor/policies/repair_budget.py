"""Whether a gang that lost a rank is repaired. Decisions only: the supervisor carries them out."""

from dataclasses import dataclass
from typing import Final, Self

#: Causes after which the gang restores a checkpoint, because snapshots in memory may be wrong.
NOT_FROM_MEMORY: Final = frozenset({"replica_mismatch"})
#: After this many repairs in a row without a new step the gang ends: the training itself causes the fault.
MAX_IDLE: Final = 3
#: Seconds before the second, third … repair in a row that brought no new step.
BACKOFF_S: Final = (0.0, 1.0, 5.0)


@dataclass(frozen=True)
class BudgetState:
    """Repairs so far, those in a row without a new step, and the step at the last one."""

    done: int = 0
    idle: int = 0
    step: int = -1


@dataclass
class RepairBudget:
    """How often a gang may be repaired: `limit` times, and only while that brings new steps."""

    limit: int
    done: int = 0
    idle: int = 0
    _step: int = -1

    def to_state(self) -> BudgetState:
        return BudgetState(self.done, self.idle, self._step)

    @classmethod
    def from_state(cls, limit: int, state: BudgetState) -> Self:
        return cls(limit, state.done, state.idle, state.step)

    @property
    def is_left(self) -> bool:
        """Whether there may be another repair."""
        return self.done < self.limit

    def allows(self, repairable: bool, step: int) -> bool:
        """Whether to repair a gang whose newest step is `step`; counts the repair if so."""
        self.idle = self.idle + 1 if step == self._step else 0
        self._step = step
        if not repairable or not self.is_left or self.idle >= MAX_IDLE:
            return False
        self.done += 1
        return True

    @property
    def backoff_s(self) -> float:
        return BACKOFF_S[self.idle]
