"""How long a step takes on given hardware, by formulas. Imports no torch.

With m micro-batches of n tokens on a rank, t tensor ranks, and φ FLOPs per token of the pipeline's busiest rank, which has B blocks:

    step    = passes + data + optimizer
    passes  = m · work + m · again + messages + bubble
    work    = n φ / (t · flops) + B · block_s        a third of it forward, a third for gradients of inputs, a third for those of weights
    again   = recompute: a forward pass of the recomputed blocks; two under schedules that split backward passes, each half of which
              computes them again
    bubble  = the pipeline's fill (`pipeline_fill.py`), none where all ranks end a step at different times, and 2(p−1) messages to and from
              the last rank; less what ranks that share a processor leave to each other
    data    = gradients and parameters over replicas, less what computing hides of it; at least one bucket of it is not hidden
    optimizer = bytes of values, moments and gradients that an update reads and writes / memory_bandwidth

φ is the count of PaLM (2204.02311, appendix B), to which a mixture with buffers of fixed size adds the products of their empty rows.
Selective recompute computes no product again but those of experts that are multiplied together; `_SELECTIVE` of a forward pass stands for
its norms, activations and rotations. An update with moments in fp32 reads and writes them and the values, reads the gradient, and writes
the value in the compute dtype. Offloaded state moves over the host's link instead, by which the host reads and writes it, too; from a
disk it is read while what was updated before is written. Offloaded activations move to the host and back, less what computing hides.

Messages: bytes by `cost/communication.py`, of rank 0, for each axis; their time by `hardware.py`. Tensor and expert parallelism and
Ulysses wait for theirs. A ring's are hidden by attention, as far as a share `hidden` of its time, and those of a pipeline, but for the
first and the last, by computing. Gradients are hidden by the backward pass of the last micro-batch, or by all backward passes if each
micro-batch sends its own (ZeRO-2 without a pipeline). Gathered parameters are hidden by the first forward pass. ZeRO-3 without a
pipeline gathers in every pass: its gradients are hidden by half of the backward passes, its parameters by the other half and the forward
passes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..cost.block_memory import block_bytes
from ..cost.communication import estimated_bytes
from ..cost.estimate import Setting, strides
from ..cost.moved_state import disk_bytes
from ..cost.stage_balance import busiest_rank
from ..layout import Layout, divides_hidden
from ..memory_options import splits_backward
from .hardware import Hardware, Pattern
from .pipeline_fill import fill_s

#: The part of a forward pass that selective recompute computes again. An assumption.
_SELECTIVE: Final = 0.1
_RINGS: Final = ("ring", "inner_ring", "outer_ring")
_REPLICAS: Final = ("replica", "shard", "shard_replica")


@dataclass(frozen=True)
class Passes:
    """Seconds of the busiest rank in the forward and backward passes of a step. `sent`: axis → those in which it waits for messages."""

    compute: float
    recompute: float
    sent: Mapping[str, float]
    bubble: float

    @property
    def seconds(self) -> float:
        return self.compute + self.recompute + sum(self.sent.values()) + self.bubble


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step. `data`: those in which nothing hides the messages between replicas."""

    passes: Passes
    data: float
    optimizer: float

    @property
    def communication(self) -> float:
        """Seconds of messages that nothing hides."""
        return sum(self.passes.sent.values()) + self.data

    @property
    def seconds(self) -> float:
        return self.passes.seconds + self.data + self.optimizer


@dataclass(frozen=True)
class _Work:
    """Seconds of one micro-batch on the busiest rank, and how many blocks it has. `attention`: the part of `once` in attention."""

    once: float
    again: float
    blocks: int
    attention: float


def step_time(setting: Setting, hardware: Hardware) -> StepTime:
    """The time of a step of the run that `setting` describes."""
    return with_update(setting, hardware, passes_of(setting, hardware))


def with_update(setting: Setting, hardware: Hardware, passes: Passes) -> StepTime:
    """The time of a step with these passes. They depend on the ZeRO stage only where `follow_zero` says so, and never on its groups."""
    return StepTime(passes, _data_s(setting, hardware), _optimizer_s(setting, hardware))


def follow_zero(layout: Layout) -> bool:
    """Whether passes depend on the ZeRO stage: tensor ranks sum gradients of norms as often as these are reduced, and in their dtype.

    With several micro-batches they take at least as long as without ZeRO.
    """
    return layout.sequence and layout.tensor > 1 and layout.pipeline == 1


def passes_of(setting: Setting, hardware: Hardware, *, messages: bool = True) -> Passes:
    """The passes; without `messages` a lower bound of them, in a fraction of the time."""
    layout, m = setting.layout, setting.batch.microbatches
    work = _work(setting, hardware)
    sent = _sent_in_blocks(setting, hardware, work) if messages else {}
    inside, third = sum(sent.values()) / m, work.once / 3
    if messages and setting.memory_options.offload.activations:
        sent["host"] = m * _activations_s(setting, hardware, work)
    together = setting.tied_ends or not setting.ends_apart  # both ends of a tied weight wait for each other
    gaps = (third + inside / 2, third + work.again + inside / 2, third)
    bubble = together * fill_s(layout, m, *gaps, ends_apart=setting.ends_apart)
    if messages and layout.pipeline > 1:
        each, steady = _boundary_s(setting, hardware)
        sent["pipeline"] = max(0.0, steady - hardware.hidden * m * (work.once + work.again))
        bubble += 2 * (layout.pipeline - 1) * each
    slower = max(1.0, 1 / hardware.cores)
    shared = m * (work.once + work.again) * (slower - 1)  # in which other ranks use the processor
    return Passes(m * work.once * slower, m * work.again * slower, sent, max(0.0, bubble - shared))


def _work(setting: Setting, hardware: Hardware) -> _Work:
    decoder, layout = setting.decoder, setting.layout
    flops, blocks = busiest_rank(layout, decoder.costs)
    rate = hardware.flops * layout.tensor
    routed = setting.tokens * blocks * decoder.routed_flops / rate * setting.expert_rows / decoder.top_k
    padding = routed * (1 - decoder.top_k / setting.expert_rows)
    once = setting.tokens * flops / rate + blocks * hardware.block_s + padding
    of_blocks = setting.tokens * blocks * decoder.costs.blocks[0] / rate + blocks * hardware.block_s + padding
    recompute = setting.memory_options.recompute
    share = {"none": 0.0, "selective": _SELECTIVE, "full": 1.0}[recompute.mode] / recompute.every
    whole = routed if recompute.mode == "selective" and setting.experts_together else 0.0
    again = (share * (of_blocks - whole) + whole / recompute.every) * (2 if splits_backward(layout) else 1)
    attention = setting.tokens * blocks * 12 * decoder.query * setting.seq_len / rate
    return _Work(once, again / 3, blocks, attention)


# Messages inside the passes.


def _sent_in_blocks(setting: Setting, hardware: Hardware, work: _Work) -> dict[str, float]:
    """Axis → seconds of a step in which a rank waits for the messages of its blocks."""
    layout, m = setting.layout, setting.batch.microbatches
    found: dict[str, float] = {}
    passes = m * work.blocks
    if layout.tensor > 1:
        each = (13 if _again(setting) else 10) if layout.sequence else (5 if _again(setting) else 4)
        found["tensor"] = _axis_s(setting, hardware, ("tensor",), passes * each)
    if layout.ulysses > 1:
        found["ulysses"] = _axis_s(setting, hardware, ("ulysses",), passes * 8, "all_to_all")
    if layout.ring > 1:
        gathers = layout.context_method == "all-gather"
        calls = passes * 3 * (1 if gathers else layout.ring - 1)
        whole = _axis_s(setting, hardware, _RINGS, calls, "rings" if gathers else "neighbours")
        found["ring"] = max(0.0, whole - (0.0 if gathers else hardware.hidden * m * work.attention))
    if layout.expert > 1:
        times = 4 + 2 * _share_recomputed(setting) * (2 if splits_backward(layout) else 1)
        size = passes * times * _routed_bytes(setting)
        found["expert"] = hardware.sending_s(layout.expert, layout.tensor, size, passes * times, "all_to_all")
    return found


def _activations_s(setting: Setting, hardware: Hardware, work: _Work) -> float:
    """Seconds per micro-batch in which a rank waits for its blocks' activations, on their way to the host and back."""
    mode, share = setting.memory_options.recompute.mode, _share_recomputed(setting)
    each = share * block_bytes(setting, mode) + (1 - share) * block_bytes(setting, "none")
    moved = setting.tokens * work.blocks * each / hardware.host
    return max(0.0, moved - work.once / 3) + max(0.0, moved - 2 * work.once / 3 - work.again)


def _share_recomputed(setting: Setting) -> float:
    """The share of blocks that are recomputed, in any mode."""
    recompute = setting.memory_options.recompute
    return 0.0 if recompute.mode == "none" else 1 / recompute.every


def _again(setting: Setting) -> bool:
    """Whether blocks send again what they sent in the forward pass."""
    return setting.memory_options.recompute.mode == "full"


def _axis_s(
    setting: Setting, hardware: Hardware, axes: tuple[str, ...], calls: float, pattern: Pattern = "rings"
) -> float:
    """Seconds of the messages over axes of the mesh that together make `calls` calls, or send as many messages to neighbours."""
    spans = strides(setting.layout)
    sizes: dict[str, float] = {}
    for (axis, _), size in estimated_bytes(setting, axes).items():
        sizes[axis] = sizes.get(axis, 0.0) + size
    return sum(hardware.sending_s(*spans[axis], size, calls / len(sizes), pattern) for axis, size in sizes.items())


def _routed_bytes(setting: Setting) -> float:
    """Bytes of a block's tokens on their way to the experts, or back: k · n · d · (E−1)/E elements. Both happen forward and backward,
    and once more where the block is recomputed, also selectively.

    k: the experts of a token, or the rows per token of buffers of fixed size, which travel as a whole.
    """
    decoder, e = setting.decoder, setting.layout.expert
    return setting.expert_rows * setting.tokens * decoder.dim * (e - 1) / e * setting.compute


def _boundary_s(setting: Setting, hardware: Hardware) -> tuple[float, float]:
    """Seconds of one message between stages, and of all those of a step that a rank sends over the busiest link.

    That is the link to one neighbour, where some are on the rank's own node and others on the next, or else to both.
    """
    layout, m = setting.layout, setting.batch.microbatches
    ranks, stride = strides(layout)["pipeline"]
    # Some boundary of a pipeline on several nodes is between nodes.
    inside = hardware.within(ranks, stride)
    link = hardware.intra if inside else hardware.inter
    size = setting.tokens * setting.compute * setting.decoder.dim / (layout.tensor if divides_hidden(layout) else 1)
    both = layout.stages > 2 and (inside or stride >= hardware.ranks_per_node)
    messages = m * layout.stages_per_rank * (1 + both)
    each = size / link.bandwidth + link.latency
    return each, messages * each


# Between replicas.


def _data_s(setting: Setting, hardware: Hardware) -> float:
    """Seconds of the messages between replicas that no pass hides."""
    layout = setting.layout
    if setting.replicas == 1:
        return 0.0
    spans = strides(layout)
    times = setting.batch.microbatches if layout.zero >= 2 and layout.pipeline == 1 else 1
    gathering = reducing = last = 0.0
    for (axis, kind), size in estimated_bytes(setting, _REPLICAS).items():
        calls = _calls(setting, size, kind)
        seconds = hardware.sending_s(*spans[axis], size, calls)
        if kind == "all_gather":
            gathering += seconds
        else:
            reducing += seconds
            last = max(last, seconds / max(1.0, calls))
    backward, forward = _windows(setting, hardware, times)
    hidden = hardware.hidden
    return max(last, reducing - hidden * backward) + max(0.0, gathering - hidden * forward)


def _calls(setting: Setting, size: float, kind: str) -> float:
    """The number of calls that send `size` bytes: by buckets, or with ZeRO-3 by blocks and the ends."""
    layout = setting.layout
    if layout.zero < 3:
        return math.ceil(size / setting.bucket_bytes)
    _, blocks = busiest_rank(layout, setting.decoder.costs)
    times = setting.batch.microbatches if layout.pipeline == 1 else 1
    twice = kind == "all_gather" and layout.pipeline == 1
    return (blocks + 1) * times * (2 if twice else 1)


def _windows(setting: Setting, hardware: Hardware, times: int) -> tuple[float, float]:
    """Seconds of the passes that hide gradients, and of those that hide gathered parameters."""
    work = _work(setting, hardware)
    slower = max(1.0, 1 / hardware.cores)
    forward, backward = work.once / 3 * slower, (2 * work.once / 3 + work.again) * slower
    if setting.layout.zero == 3 and setting.layout.pipeline == 1:
        return times * backward / 2, times * (forward + backward / 2)
    return times * backward, forward


def _optimizer_s(setting: Setting, hardware: Hardware) -> float:
    """Seconds of the update of the parameters whose optimizer state the busiest rank keeps."""
    parts = setting.cut if setting.layout.zero else 1
    own, each = setting.decoder.chunks_held(setting.layout, parts), update_bytes(setting)
    offload = setting.memory_options.offload
    moved = setting.gradients + setting.compute
    there = (each + moved) / hardware.host
    if offload.to == "disk":
        written = disk_bytes(setting)
        there = (each - 2 * written + moved) / hardware.host + written * hardware.ranks_per_node / hardware.disk
    return own * ((1 - offload.optimizer) * each / hardware.memory_bandwidth + offload.optimizer * there)


def update_bytes(setting: Setting) -> int:
    """Bytes that the update of one parameter reads and writes."""
    rounded = setting.compute if setting.compute != setting.master else 0
    return 2 * (1 + setting.moments) * setting.master + setting.gradients + rounded
