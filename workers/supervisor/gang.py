"""The state of one attempt's gang in its supervisor: what the journal keeps (`gang_state.py`), and the parts that use it.

Rule that it keeps: only lifecycle.py, repair.py and absences.py change these attributes. The parts take arguments and return what happened.
"""

import asyncio

from ..messages.event_buffer import Spool
from ..messages.gang_spec import GangSpec
from ..messages.profile_request import Profile
from .event_merger import EventMerger
from .event_pump import EventPump
from .exec_orders import ExecOrders
from .fault_orders import FaultOrders
from .gang_secrets import GangSecrets
from .gang_state import GangState, PendingExec, PendingFault, PendingTrace, Phase
from .journal.journal import Journal
from .orders import OrderQueue
from .policies.failures import REPAIRABLE, Failure
from .policies.repair_budget import RepairBudget
from .profile_orders import ProfileOrders
from .ranks.members import Member
from .ranks.placement import Placement
from .ranks.spares import Spare, Spares
from .step_watch import StepWatch
from .trace_orders import TraceOrders


class Gang:
    """The state in memory. Actors are found by their names after a restart (`lifecycle.py`)."""

    def __init__(
        self, spec: GangSpec, journal: Journal, spool: Spool, secrets: GangSecrets, state: GangState | None = None
    ) -> None:
        state = state or GangState()
        self.spec, self.journal, self.spool, self.secrets = spec, journal, spool, secrets
        self.phase: Phase = state.phase
        self.stopping = state.stopping
        self.generation, self.restore, self.distrusted = state.generation, state.restore, state.distrusted
        self.snapshots_off = state.snapshots_off
        self.repair = state.repair  # the newest one
        self.failures: list[Failure] = state.failures  # of this generation, without redundant ones
        self.budget = RepairBudget.from_state(spec.max_repairs, state.budget)
        self.members = [Member.from_state(rank) for rank in state.ranks]
        self._undone = 0  # a rank that was not done when it was last looked at
        self.ended = asyncio.Event()  # this generation, by a failure, a stop, or because all are done
        self.merger = EventMerger(spool, spec.world_size)
        self.merger.resume(state.merger)
        self.spares = Spares(spec, journal.settled)
        self.spares.all = [Spare.from_state(spare) for spare in state.spares]
        self.placement = Placement(spec, self.spares, lambda: self.stopping is not None)
        self.watch = StepWatch(spec, state.stragglers, state.loss_spike)
        faults: OrderQueue[PendingFault] = OrderQueue(journal.settled)
        self.faults = FaultOrders(spec, faults, self.members, lambda: self.phase)
        self.faults.resume(state.faults)
        traces: OrderQueue[PendingTrace] = OrderQueue(journal.settled)
        self.traces = TraceOrders(spec.world_size, traces, spool)
        self.traces.resume(state.traces)
        profiles: OrderQueue[Profile] = OrderQueue(journal.settled)
        self.profiles = ProfileOrders(profiles, self.members, lambda: self.phase)
        self.profiles.resume(state.profiles)
        execs: OrderQueue[PendingExec] = OrderQueue(journal.settled)
        self.execs = ExecOrders(execs, self.members, lambda: self.phase)
        self.execs.resume(state.execs)
        self.pump = EventPump(spec, journal, self.merger, self.watch, self.traces, secrets)

    def to_state(self) -> GangState:
        """The state for the journal."""
        return GangState(
            phase=self.phase,
            stopping=self.stopping,
            generation=self.generation,
            restore=self.restore,
            distrusted=self.distrusted,
            snapshots_off=self.snapshots_off,
            repair=self.repair,
            failures=self.failures,
            budget=self.budget.to_state(),
            ranks=[member.to_state() for member in self.members],
            spares=[spare.to_state() for spare in self.spares.all],
            merger=self.merger.to_state(),
            stragglers=self.watch.stragglers.to_state(),
            loss_spike=self.watch.spikes.to_state(),
            faults=self.faults.to_state(),
            traces=self.traces.to_state(),
            profiles=self.profiles.to_state(),
            execs=self.execs.to_state(),
        )

    @property
    def all_done(self) -> bool:
        # Asked for at the end of each rank. The one that was not done the last time comes first: else n ends are n² looks.
        for _ in self.members:
            if not self.members[self._undone].done:
                return False
            self._undone = (self._undone + 1) % len(self.members)
        return bool(self.members)

    @property
    def absences(self) -> list[Failure]:
        """Why ranks are gone without which the others train on. Their incidents are emitted."""
        workers = self.members[: self.spec.own_clocks]
        return [member.absence for member in workers if member.absence is not None]

    @property
    def awaits_return(self) -> bool:
        """Whether all ranks have ended but those that are gone, so that these return."""
        return bool(self.absences) and all(member.done or member.absence is not None for member in self.members)

    @property
    def root_cause(self) -> Failure:
        """The first failure that is not a secondary error of another one; else an exception that is not of torch.distributed.

        Without one it is an abort by NCCL's watchdog, which others follow, or why a rank is gone: the others needed it.
        """
        primary = [failure for failure in self.failures if not failure.secondary]
        aborts = [failure for failure in self.failures if failure.is_abort]
        own = [failure for failure in self.failures if not (failure.is_abort or failure.is_lost_connection)]
        known = primary or own or aborts or self.absences or self.failures
        return known[0] if known else Failure("gang_error", None, "its ranks ended, and nothing says why")

    def is_repairable(self, root: Failure) -> bool:
        """Whether the machines are to blame for it. A gang of one rank has no peer to lose."""
        return root.cause in REPAIRABLE or (root.is_repairable and self.spec.world_size > 1)

    def final_reason(self, root: Failure) -> str:
        """The reason of the final state after this root cause."""
        return root.reason if self.spec.world_size > 1 else root.cause

    def emit_incident(self, failure: Failure) -> None:
        """With the last lines of the rank to blame."""
        log = [] if failure.rank is None else self.members[failure.rank].log
        self.merger.emit_incident(failure, self.generation, log)

    def emit_root_cause(self, root: Failure) -> None:
        """Its incident. That of an absent rank was emitted when it was lost."""
        if root not in self.absences:
            self.emit_incident(root)
