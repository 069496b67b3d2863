"""Watches complete steps: progress, stragglers, loss spikes, and a sample of every rank's metrics every few seconds."""

import math
from collections.abc import Sequence

from ..messages.event_buffer import Ranks
from ..messages.gang_spec import GangSpec
from .policies.failures import Failure
from .policies.hang import Progress
from .policies.loss_spike import LossSpikeState, Spikes
from .policies.straggler import Stragglers, StragglersState
from .rank_samples import Samples


class StepWatch:
    """Receives each complete step of a gang, by rank."""

    def __init__(self, spec: GangSpec, stragglers: StragglersState, loss_spike: LossSpikeState) -> None:
        self.progress = Progress(spec.hang_timeout_s or math.inf)
        self.stragglers = Stragglers.from_state(spec.straggler, stragglers)
        self.spikes = Spikes.from_state(spec.loss_spike, loss_spike)
        self.samples = Samples(spec.world_size)

    def incidents(self, ranks: Ranks, nodes: Sequence[str | None]) -> list[Failure]:
        """The incidents that begin or end with a step. They do not stop the training. `nodes`: each rank's."""
        found = [one.failure(nodes[one.rank]) for one in self.stragglers.add(ranks)]
        spike = self.spikes.add(ranks.get(0, {}))
        return found if spike is None else [*found, spike]
