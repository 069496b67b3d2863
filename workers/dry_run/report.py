"""What a dry run found: one rank's memory, host synchronisations and collectives in one step. Plain data; imports no torch."""

from dataclasses import dataclass, field
from typing import Literal

#: What device memory holds, in the order in which it is shown. `gradients` are all that a backward pass makes, those of activations, too.
Kind = Literal["parameters", "gradients", "optimizer", "activations", "logits", "buffers"]
KINDS: tuple[Kind, ...] = ("parameters", "gradients", "optimizer", "activations", "logits", "buffers")

#: The parts of a step in which memory is measured; `build` is before the first one, `validation` one batch after it.
Phase = Literal[
    "build", "batch", "forward and backward", "gradients", "norm", "clip", "update", "publish", "validation"
]

#: What a host waits for. An event counts if the host does not know it to be over, a stream and the whole device always.
HostWait = Literal["read from device", "copy to device", "copy to host", "event", "stream", "device"]


@dataclass(frozen=True)
class PhasePeak:
    """The most device memory that one phase of a step holds, and the line of Shardyard's code that allocates the last of it."""

    phase: Phase
    bytes: int
    operator: str
    line: str  # file:line; empty if no line of ours is on the stack, as in a backward pass


@dataclass(frozen=True)
class HostSync:
    """A place at which the host waits for the device in every step, or in a validation batch."""

    line: str
    what: HostWait
    count: int


@dataclass(frozen=True)
class Collectives:
    """Collectives of one kind on one mesh axis in one step: what one rank sends, by the algorithm's logical bytes."""

    axis: str
    kind: str
    calls: int
    bytes: float


@dataclass(frozen=True)
class Message:
    """One message between two ranks. Those with the same `batch` were started together."""

    what: Literal["send", "recv"]
    other: int  # rank of the world
    elements: int
    dtype: str
    batch: int


@dataclass(frozen=True)
class Meeting:
    """One collective of a group. Its `batch` is its place among the messages and collectives that the rank starts."""

    what: str  # operator, dtype and elements
    batch: int


@dataclass(frozen=True)
class DryRun:
    """One rank's step. Bytes of the device are rounded up as CUDA's caching allocator does; fragmentation is not counted."""

    rank: int
    world_size: int
    layout: str
    parameters: int  # of the whole model
    state_bytes: int  # parameters and optimizer state, after build
    peak_bytes: int
    peak_phase: Phase
    host_bytes: int  # host memory for tensors, most
    by_kind: dict[Kind, int]  # at the peak of a step, whose bytes are their sum
    phases: tuple[PhasePeak, ...]
    host_syncs: tuple[HostSync, ...]
    collectives: tuple[Collectives, ...]
    sequence: dict[str, str]  # ranks of a group → digest of its collectives in order; equal on all of them
    messages: tuple[
        Message, ...
    ] = ()  # to and from other ranks, in order: of a step and of a validation batch after it
    meetings: dict[str, tuple[Meeting, ...]] = field(
        default_factory=dict
    )  # ranks of a group → its collectives, of the same
    #: (blocks per stage, micro-batches) of the runs from which the numbers were extrapolated; empty if the whole step was run.
    #: `sequence`, `messages` and `meetings` are those of the largest of them.
    extrapolated_from: tuple[tuple[int, int], ...] = ()
    validation_syncs: tuple[HostSync, ...] = ()  # of the validation batch after the step
    precision: str = ""  # the dtype of computation
    choices: tuple[str, ...] = ()  # for each option that is `auto` in the spec: its value, and why
    seconds: float = 0.0
