"""One attempt, as the dispatcher orders it and its supervisor carries it out. Imports neither torch nor Ray."""

import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from . import json_codec

#: Fields of earlier versions that nothing needs. A supervisor that Ray restarts after an upgrade reads the spec of its start.
FORMER: Final = frozenset({"submitted_at"})

#: `GangSpec.gpu` of a gang whose GPUs may be of several models.
ANY_MODELS: Final = "mixed"


@dataclass(frozen=True)
class StragglerLimits:
    """When a rank is a straggler (`policy.straggler`)."""

    factor: float = 1.5
    steps: int = 20
    seconds: float = 30.0


@dataclass(frozen=True)
class LossSpikeLimits:
    """What counts as a spike (`policy.loss_spike`)."""

    window: int = 100
    deviations: float = 10.0


@dataclass(frozen=True)
class GangSpec:
    """What to run, on how many devices of which kind, and what the supervisor does when it goes wrong."""

    name: str  # `gang_name` of the job and its attempt; also the name of the supervisor and of the placement group
    run: dict[str, Any]  # a `workers.spec.Run` as JSON
    world_size: int
    tensor: int = 1  # ranks of one tensor group are neighbours and share a node
    device: str = "cpu"
    max_repairs: int = 0  # in place, in the whole attempt
    hang_timeout_s: float | None = None  # without progress, after which every rank is examined; None: never
    straggler: StragglerLimits | None = None  # None: no detection
    loss_spike: LossSpikeLimits | None = None  # None: no detection
    avoided: tuple[str, ...] = ()  # ids of nodes on which it must not be placed
    gpu: str = ""  # model of all its GPUs, by Ray's label; empty: any one model
    within: Literal["zone", "domain"] | None = None  # all ranks have one value of this label
    image: str = ""  # of all its nodes, by their label; empty: the cluster's own
    other_images: tuple[
        str, ...
    ] = ()  # of the cluster's nodes, also of those that are away, where it needs the cluster's own
    neighbours: tuple[int, ...] = ()  # sizes of groups of consecutive ranks that exchange much, largest first
    elastic_grace_s: float | None = (
        None  # to wait for lost devices before the job continues with fewer; None: it may not
    )
    spares: int = 0  # actors without a rank, each on a device of its own, which replace ranks that die
    cpus_per_rank: float = 0.25  # CPU ranks only
    cpus_per_gpu: float = 0.0  # reserved by each rank on a GPU
    env: dict[str, str] = field(default_factory=dict)  # variables that the job adds to its trainers' environment
    secrets: bool = False  # whether the ranks get secrets, which the dispatcher sends apart from this
    entry: str = ""  # `module:function` that trains; empty: this package's own loop
    sample_s: float = 0.0  # interval at which the use of nodes and ranks is sampled; 0: never
    timeout_s: float = 600.0  # of collectives
    lease_s: float = 30.0  # after which a rank exits that its supervisor has not called
    own_clocks: int = 0  # workers with clocks of their own, the first ranks; 0 without, or without snapshots

    @property
    def dispensable(self) -> range:
        """Ranks without which the others train on until their next meeting. Rank 0 reports on the job, and is none."""
        return range(1, self.own_clocks)

    @property
    def resources(self) -> dict[str, float]:
        """What a rank takes of its node, by Ray's names."""
        if self.device != "cuda":
            return {"CPU": self.cpus_per_rank}
        return {"GPU": 1.0} | ({"CPU": self.cpus_per_gpu} if self.cpus_per_gpu else {})

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the fields that have their default."""
        data: dict[str, Any] = json.loads(json_codec.dumps(self))
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError for unknown or missing fields, or values of another type. Leaves out those of earlier versions."""
        spec: Self = json_codec.read(cls, {name: value for name, value in data.items() if name not in FORMER})
        return spec
