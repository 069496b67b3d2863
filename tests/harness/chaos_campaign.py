"""Faults in a row at one job after the other, and what they cost: printed as it goes, and summed up at the end."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .chaos import Fault
from .chaos_stage import ChaosStage
from .control_plane import until
from .patience import PATIENCE_S

#: Steps that a job makes between two faults, unless it ends.
STEPS_BETWEEN = 3


@dataclass
class InjectedFault:
    """A fault that was injected: when (unix seconds), after which step, and how long that took."""

    fault: Fault
    at: float
    step: int
    took_s: float = 0.0
    stalled_s: float | None = None  # from the fault to the next step; None: there was none to come


@dataclass
class ChaosCampaign:
    """All faults of one run. `report` prints."""

    faults: list[Fault]
    report: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    injections: list[InjectedFault] = field(default_factory=list)
    jobs: int = 0

    @property
    def left(self) -> int:
        return len(self.faults) - len(self.injections)

    def inject(
        self, stage: ChaosStage, job: str, most: int, step: Callable[[], int | None], steps: int
    ) -> list[InjectedFault]:
        """Up to `most` of the faults that are left, each when the job has got on since the last one.

        `step()`: the job's newest of its `steps`, None when it has ended.
        """
        self.jobs += 1
        injected: list[InjectedFault] = []
        since = 0
        while len(injected) < most and self.left:
            fault = self.faults[len(self.injections)]
            what = (
                f"a step of {job} after {since}; injected: {', '.join(str(one.fault) for one in injected) or 'nothing'}"
            )
            now = self._wait(stage, step, since, what)
            if now is None or steps - now < fault.needs or not self._inject(stage, job, fault, now):
                break
            injected.append(self.injections[-1])
            since = now + STEPS_BETWEEN
        return injected

    def _wait(self, stage: ChaosStage, step: Callable[[], int | None], since: int, what: str) -> int | None:
        """The job's newest step once it is after `since`; None when it has ended."""
        now: int | None = 0

        def got_on() -> bool:
            nonlocal now
            now = step()
            if stage.machines.complete():
                self.report(
                    f"  {time.monotonic() - self.began:6.0f} s  Ray gave a machine up without a fault; a fresh one came"
                )
            return now is None or now > since

        until(got_on, PATIENCE_S, what)
        return now

    def _inject(self, stage: ChaosStage, job: str, fault: Fault, step: int) -> bool:
        """Whether there still was anything to inject it into."""
        injection = InjectedFault(fault, time.time(), step)
        if not fault.inject(stage, job):
            return False
        injection.took_s = time.time() - injection.at
        self.injections.append(injection)
        done = f"fault {len(self.injections)} of {len(self.faults)}"
        self.report(
            f"  {time.monotonic() - self.began:6.0f} s  {done}: {fault} after step {step}, in {injection.took_s:.1f} s"
        )
        return True

    def summary(self) -> str:
        """Faults by kind with the seconds that they cost: median and worst."""
        whole = f"{len(self.injections)} faults at {self.jobs} jobs in {time.monotonic() - self.began:.0f} s"
        lines = [f"  {whole}; seconds from a fault to the next step:", f"  {'kind':20} faults  median   worst"]
        for kind in sorted({injection.fault.name for injection in self.injections}):
            mine = [injection for injection in self.injections if injection.fault.name == kind]
            took = [injection.stalled_s for injection in mine if injection.stalled_s is not None]
            numbers = f"{statistics.median(took):7.2f} {max(took):7.2f}" if took else "      –       –"
            lines.append(f"  {kind:20} {len(mine):6} {numbers}")
        return "\n".join(lines)


def measure(injections: Sequence[InjectedFault], steps: Sequence[float]) -> None:
    """How long each fault of one job kept it from its next step. `steps`: when each of its steps was done, unix seconds."""
    for number, injection in enumerate(injections):
        end = injections[number + 1].at if number + 1 < len(injections) else float("inf")
        starts = [max(before, injection.at) for before in (injection.at, *steps)]
        gaps = [
            after - start for start, after in zip(starts, steps, strict=False) if after > injection.at and start < end
        ]
        injection.stalled_s = max(gaps, default=None)
