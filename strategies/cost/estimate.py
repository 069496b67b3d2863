"""The answer of a formula: a number or its bounds, with the formula as text; or the reason why there is none. Never a guess.

Imports no torch.
"""

import math
from dataclasses import dataclass

from ..batch import Batch
from ..context_axes import context_axes
from ..delayed_rules import alternates
from ..expert_rules import HOPPER, groups_experts, rows_fit
from ..layout import AXES, Layout
from ..memory_options import MemoryOptions
from ..zero_plus_plus_axes import zero_plus_plus_axes
from .model_shape import Decoder


@dataclass(frozen=True)
class Formula:
    """Bytes of one rank: least and most over ranks, or the formula's bounds; `words` is the formula."""

    words: str
    low: float
    high: float


@dataclass(frozen=True)
class Unknown:
    """There is no formula, and why."""

    reason: str


@dataclass(frozen=True)
class Setting:
    """The facts about a run that the formulas need.

    `compute`, `master` and `gradients`: bytes per element of the compute dtype, of the kept values, and of a sum of gradients.
    """

    layout: Layout
    batch: Batch
    decoder: Decoder
    seq_len: int
    precision: str
    compute: int
    master: int
    gradients: int
    moments: int  # of the optimizer, per parameter
    counted: bool  # whether the optimizer counts its updates per parameter
    memory_options: MemoryOptions
    smoothing: bool
    z_loss: bool
    bucket_bytes: int
    prefetch: int
    device: str
    loss_chunk: int | None = None  # tokens whose logits exist at a time; None: all of a micro-batch
    snapshots: bool = False  # whether the state is copied to host memory
    packed: bool = False  # whether attention stays within documents
    capability: tuple[int, int] | None = None  # of the GPUs; None: not known, taken as new
    ends_apart: bool = False  # whether the ranks of a pipeline with delayed gradients end a step at different times

    @property
    def replicas(self) -> int:
        """Ranks over which gradients are summed."""
        return self.layout.degrees["data"] * self.layout.context * self.layout.division.copies

    @property
    def cut(self) -> int:
        """Ranks over which ZeRO shards."""
        return self.layout.shard or self.replicas

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch that one rank processes."""
        return self.batch.micro_batch * self.seq_len // self.layout.context

    @property
    def each_microbatch(self) -> bool:
        """Whether each micro-batch's gradients are sent at once (ZeRO-2)."""
        return self.layout.zero == 2 and self.layout.pipeline == 1

    @property
    def fixed_buffers(self) -> bool:
        """Whether experts over several ranks get buffers of fixed size (`expert_parallel.py`)."""
        capacity = self.decoder.capacity_factor is not None and not self.packed
        return capacity and self.layout.expert > 1 and self.device != "cpu"

    @property
    def experts_together(self) -> bool:
        """Whether experts are multiplied in one product, and not in a loop (`workers/models/experts.py`)."""
        if self.fixed_buffers or self.device == "cpu" or self.precision != "bf16":
            return self.fixed_buffers
        widths = self.decoder.dim, self.decoder.hidden // self.layout.tensor
        return groups_experts(self.capability or HOPPER) and rows_fit(widths, self.compute)

    @property
    def expert_rows(self) -> float:
        """Rows per token that a mixture's experts compute with: in buffers of fixed size as many as they could get."""
        of = self.decoder
        if of.experts is None or of.capacity_factor is None or not self.fixed_buffers:
            return of.top_k
        local = self.seq_len // self.layout.context
        return of.experts * min(math.ceil(of.capacity_factor * self.seq_len * of.top_k / of.experts), local) / local

    @property
    def sums_two_steps(self) -> bool:
        """Whether a rank sums gradients of the next step while it sums those of its step: 2BW where ranks end a step together."""
        alternating = alternates(self.layout, self.batch.microbatches, self.ends_apart)
        return self.layout.versions > 1 and self.layout.schedule == "2bw" and not alternating

    @property
    def sent(self) -> int:
        """Bytes per element of a gradient that ZeRO-1 or ZeRO-2 sends. NCCL sums in the dtype that is sent, gloo's receiver in another."""
        return self.compute if self.each_microbatch and self.device == "cpu" else self.gradients

    @property
    def tied_ends(self) -> bool:
        """Whether two ends of a pipeline share a parameter."""
        return self.decoder.tied and self.layout.pipeline > 1


#: Bytes of an element in the compute dtype, and of one that is kept, by precision.
ELEMENT_BYTES = {"fp64": (8, 8), "fp32": (4, 4), "bf16": (2, 4), "fp16": (2, 4), "fp8": (2, 4)}


def axis_names(layout: Layout) -> dict[str, str]:
    """Mesh axis → the name under which its traffic is counted.

    Axes with the same ranks share one name: the one that a spec uses, if a spec uses one of them. Axes of one rank send nothing and
    have no name.
    """
    if layout.servers:  # workers send to servers only
        return {"parameter_server": "parameter_server"}
    names: dict[tuple[int, ...], str] = {}
    groups = _groups(layout)
    for axis in sorted(groups, key=lambda axis: (axis in AXES, axis == "replica")):
        if len(groups[axis]) > 1:
            names[groups[axis]] = axis
    return {axis: names[group] for axis, group in groups.items() if group in names}


def _groups(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Axis → the ranks that rank 0 shares it with, in the order in which `strategies/mesh.py` makes them."""
    return {axis: tuple(range(0, degree * stride, stride)) for axis, (degree, stride) in strides(layout).items()}


def strides(layout: Layout) -> dict[str, tuple[int, int]]:
    """Axis → its number of ranks, and how far apart two neighbours on it are in the numbering of ranks."""
    t, c, d, copies = layout.tensor, layout.context, layout.degrees["data"], layout.division.copies
    found = {"pipeline": (layout.pipeline, d * c * t), "tensor": (t, 1), "replica": (d * c * copies, t // copies)}
    found |= {"data": (d, t)} if c * copies == 1 else {}  # otherwise nothing is sent over it
    found |= {"context": (c, t)} | {part: (size, stride * t) for part, (size, stride) in context_axes(layout).items()}
    if layout.tensor_shape is not None:
        side = layout.division.columns
        found |= {"tensor_row": (side, side), "tensor_column": (side, 1)}
        found |= {"tensor_depth": (side, side**2)} if layout.tensor_shape.mode == "3d" else {}
    if layout.shard:
        found |= {"shard_replica": (d * c // layout.shard, layout.shard * t), "shard": (layout.shard, t)}
    found |= {axis: (size, stride * t // copies) for axis, (size, stride) in zero_plus_plus_axes(layout).items()}
    return found
