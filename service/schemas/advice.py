"""The fastest layouts of a spec, as the advisor estimates them."""

from typing import Any

from pydantic import Field

from .base import Value
from .memory_plan import KindBytes


class AdvisedLink(Value):
    """A link between ranks."""

    bandwidth: float = Field(description="Bytes per second that a rank reaches in each direction.")
    latency_s: float = Field(description="Seconds of a message of no bytes.")


class AdvisedHardware(Value):
    """The hardware that the estimate is for."""

    device: str = Field(description="Kind of devices: `cpu` or `cuda`.")
    flops: float = Field(description="FLOP/s that a rank reaches in the passes of the model.")
    memory_bytes: int | None = Field(
        description="Memory of a GPU, or of a node whose CPU ranks share it; null: unknown, and everything fits."
    )
    host_memory_bytes: int | None = Field(
        None,
        description="Host memory of a node, which the ranks of its GPUs share; null: unknown, and what is offloaded fits.",
    )
    memory_bandwidth: float = Field(description="Bytes per second that an update reaches in a rank's memory.")
    ranks_per_node: int
    cores: float = Field(description="Processors per rank; below 1 ranks share them.")
    intra: AdvisedLink = Field(description="Between ranks of a node.")
    inter: AdvisedLink = Field(description="Between ranks of two nodes.")
    block_s: float = Field(description="Seconds that a micro-batch takes in a block beside its FLOPs.")
    hidden: float = Field(description="Share of a time of computing that hides messages beside it.")


class AxisSeconds(Value):
    """Seconds of a step in which nothing hides the messages of an axis, or of `host`: activations that are offloaded there."""

    axis: str
    seconds: float


class AdvisedLayout(Value):
    """The fastest layout of its degrees that fits."""

    layout: str = Field(description="The layout as text.")
    train: dict[str, Any] = Field(description="The keys of `train` that select it: `layout`, `recompute`, `offload`.")
    microbatches: int
    micro_batch: int = Field(description="Sequences of a micro-batch.")
    seconds: float = Field(description="Seconds of a step: the sum of what follows.")
    compute_s: float = Field(description="Forward and backward passes, without recompute.")
    recompute_s: float
    messages: list[AxisSeconds]
    bubble_s: float = Field(description="The busiest rank of the pipeline waits for others.")
    optimizer_s: float
    tokens_per_s: float
    needed_bytes: int = Field(description="Bytes that the fullest rank needs: tensors, and what its process holds.")
    kinds: list[KindBytes] = Field(description="Bytes of its tensors by kind, at the peak of a step.")
    host: list[KindBytes] = Field(
        [], description="Bytes that a rank offloads to host memory, by what they are for. Snapshots are not counted."
    )

    @property
    def messages_s(self) -> float:
        """Seconds of messages that nothing hides."""
        return sum(one.seconds for one in self.messages)


class RefusedDegrees(Value):
    """Degrees of an axis that the model cannot take."""

    field: str
    message: str = Field(description="Why the first of them cannot be.")
    count: int


class RefusedCandidates(Value):
    """Candidates that the spec's checks refuse."""

    field: str
    count: int


class LeftOut(Value):
    """What became of the other candidates."""

    candidates: int = Field(description="Candidates of degrees that each axis allows.")
    degrees: list[RefusedDegrees]
    refused: list[RefusedCandidates]
    does_not_fit: int = Field(description="Candidates that need more memory than there is.")
    slower: int = Field(
        description="Candidates that are slower than the layouts shown, or than another one of their degrees."
    )
    least_needed_bytes: int | None = Field(
        description="A lower bound of what a rank of the most frugal candidate needs, of those that do not fit."
    )
    least_host_bytes: int | None = Field(
        None,
        description="A lower bound of the host memory that a rank of the most frugal candidate needs, of those that lack only that.",
    )


class LayoutAdvice(Value):
    """The fastest layouts of a number of ranks, by formulas; each has other degrees."""

    world_size: int
    hardware: AdvisedHardware
    layouts: list[AdvisedLayout] = Field(description="The fastest first; empty: nothing fits.")
    offloaded: bool = Field(description="Whether the optimizer's state had to be on the host.")
    left_out: LeftOut
