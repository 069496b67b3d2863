"""What the fullest rank holds at the peak of a step, by kind, before any device is taken. Imports no torch.

`memory.py` has the formulas of single kinds, as a probe measures them. Not all of them are at their most at the same time, so a peak
is the largest of these moments, over all places in the pipeline:

- loss: what lasts, the activations in flight, and the loss's copies of the logits.
- backward: what the backward pass of one block holds; a recomputed block has its activations again. At the last block there are all
  activations, at the first one the gradients of what comes after it.
  The gradient of a head that is also the embedding waits to the end of the pass, and is added to the embedding's there.
- reduced: no activations, all gradients, and where they were summed in the compute dtype a copy for the optimizer: ZeRO-0 in bf16 holds
  18Ψ with sums in fp32, 20Ψ with sums in bf16.

ZeRO-3 holds gathered blocks beside its shards (`gathered.py`), ZeRO++ a secondary shard, which counts as parameters, and schedules
that split backward passes gradients for the second half (`weight_passes.py`). An estimate says where it cannot be exact: `Plan.notes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from ..delayed_rules import versions_of
from ..layout import divides_hidden, own_clocks, profiled
from . import buckets, gathered, in_flight, logits, moved_state, parameter_server, weight_passes
from .block_memory import block_bytes, gathered_weights, working_bytes
from .estimate import Setting
from .on_host import largest_block_bytes, most_on_host
from .rank_parameters import Rank, rank_at
from .snapshots import SNAPSHOTS
from .stage_balance import stage_blocks

Kind = Literal["parameters", "gradients", "optimizer", "activations", "logits", "buffers", "workspace"]
KINDS: Final[tuple[Kind, ...]] = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "buffers",
    "workspace",
)

Moment = Literal["loss", "backward", "reduced"]
#: What a plan is made by. Dry runs are of modules of the user's own, where they were submitted.
Source = Literal["formulas", "dry run"]


@dataclass(frozen=True)
class Plan:
    """Bytes of the fullest rank by kind, at the `moment` of its peak (of a dry run: None).

    `host`: bytes in host memory by what they are for: of that rank, and beside GPUs of the one that has most there.
    `disk`: bytes of state on a disk of its node, which an update reads once and writes once.
    """

    by_kind: Mapping[Kind, int]
    moment: Moment | None
    host: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    disk: int = 0
    source: Source = "formulas"

    @property
    def peak(self) -> int:
        return sum(self.by_kind.values())

    @property
    def offloaded(self) -> Mapping[str, int]:
        """Bytes in host memory that the run cannot do without, by what they are for: all but snapshots."""
        return {what: held for what, held in self.host.items() if what != SNAPSHOTS}


def plan(setting: Setting) -> Plan:
    """The plan of the rank that needs most."""
    blocks = [len(part) for part in stage_blocks(setting.layout, setting.decoder.costs)]
    ranks = [rank_at(setting, place, blocks) for place in range(setting.layout.pipeline)]
    moments = [(rank, name, held) for rank in ranks for name, held in _moments(rank).items()]
    if setting.layout.servers:
        moments.append((ranks[0], "reduced", _server(setting)))
    rank, moment, held = max(moments, key=lambda one: sum(one[2].values()))
    by_kind: dict[Kind, int] = {kind: round(held[kind]) for kind in KINDS if held.get(kind)}
    notes = _notes(setting) + moved_state.notes(setting, rank.own)
    return Plan(by_kind, moment, most_on_host(rank, ranks), notes, round(moved_state.on_disk(setting, rank.own)))


def least_bytes(setting: Setting) -> float:
    """A lower bound of the plan's peak, in a fraction of its time: what the first rank of a pipeline has before its backward pass."""
    rank = rank_at(setting, 0, [len(part) for part in stage_blocks(setting.layout, setting.decoder.costs)])
    return sum(_lasting(rank).values()) + _activations(rank) + _gradients_before(rank)


Held = dict[Kind, float]


def _server(setting: Setting) -> Held:
    """The fullest parameter server: when the gradients of all workers are summed, or those of one worker have arrived."""
    sizes = max(parameter_server.keys(setting), key=sum)
    gradients = setting.master * sum(sizes)
    own = own_clocks(setting.layout)
    messages = parameter_server.copies_bytes(setting) if own else parameter_server.message_bytes(setting)
    return {
        "optimizer": parameter_server.state_bytes(setting, sizes),
        "gradients": gradients,
        "buffers": messages,
    }


def _moments(rank: Rank) -> dict[Moment, Held]:
    lasting, setting = _lasting(rank), rank.setting
    sizes = (setting, rank.block, rank.ends, rank.blocks)
    kept: Held = {**lasting, "activations": _activations(rank), "gradients": _gradients_before(rank)}
    messages, received = _messages(rank), buckets.received(setting, rank.parameters, rank.largest)
    backward = gathered.in_backward(*sizes) + gathered.divided(setting, rank.unshared)
    works: Held = {"buffers": messages + received + backward, "workspace": _working(rank)}
    last_block: Held = {**kept, **works, "logits": _logits(rank, False)}
    if setting.layout.pipeline > 1:  # its buckets leave in the last pass, when no other micro-batch has activations
        last_block["buffers"] -= received
    last_block["gradients"] += _for_weights(rank) + _of_head(rank)
    first_block: Held = {**lasting, **works, "activations": _of_one_block(rank)}
    first_block["gradients"] = _gradients_after(rank, rank.embed + rank.block * (rank.blocks > 0)) + _of_head(rank)
    moments: dict[Moment, Held] = {
        "backward": max(
            _start(rank, lasting),
            _ahead(rank, lasting),
            last_block,
            first_block,
            _sums(rank, lasting),
            _lookup(rank, lasting),
            key=lambda held: sum(held.values()),
        ),
        "reduced": {
            **lasting,
            **_reduced(rank),
            "buffers": messages + received + gathered.at_end(*sizes) + rank.encoding + setting.master * rank.swapped,
        },
    }
    if rank.last:
        kept["gradients"] += _for_weights(rank, running=False)
        buffers = messages + gathered.at_loss(*sizes)
        moments["loss"] = {**kept, "logits": _logits(rank, True), "buffers": buffers}
    return moments


def _sums(rank: Rank, lasting: Held) -> Held:
    """When as many sums of ZeRO-3's gradients as may be are in transit on gloo."""
    setting = rank.setting
    sums = gathered.sums_in_transit(setting, rank.blocks)
    if not sums:
        return {}
    return {
        **lasting,
        "activations": _activations(rank) * (1 - sums / rank.blocks),
        "gradients": setting.master * rank.shard * rank.block / rank.parameters * sums,
        "buffers": gathered.in_transit(setting, rank.block, rank.ends, rank.blocks),
        "workspace": setting.compute * rank.largest,
    }


def _start(rank: Rank, lasting: Held) -> Held:
    """When ZeRO-3 gathers the ends and the first block for a micro-batch."""
    setting = rank.setting
    summed = _summed(rank) if setting.batch.microbatches > 1 else 0
    return {**lasting, "gradients": summed, "buffers": gathered.at_start(setting, rank.block, rank.ends)}


def _ahead(rank: Rank, lasting: Held) -> Held:
    """In ZeRO-3's forward pass: at the last block that has as many blocks gathered ahead as may be."""
    setting = rank.setting
    buffers = gathered.in_forward(setting, rank.block, rank.ends, rank.blocks, rank.unshared)
    if not buffers:
        return {}
    passed = 1 if setting.memory_options.offload.activations else max(1, rank.blocks - setting.prefetch) / rank.blocks
    return {
        **lasting,
        "activations": _activations(rank) * passed,
        "gradients": _gradients_before(rank),
        "buffers": buffers,
        "workspace": _working(rank),
    }


def _lookup(rank: Rank, lasting: Held) -> Held:
    """At the end of a micro-batch, when the embedding has its gradient. Autograd adds that of a head that is the same table."""
    if not rank.table:
        return {}
    setting, head = rank.setting, _of_head(rank)
    own = logits.of_lookup(setting) * rank.table
    gradients = _gradients_after(rank, rank.embed) + head + max(own, 2 * head)
    if setting.layout.zero == 3:  # those of the other ends wait for it, too, and the first block's are still reduced
        gradients += setting.compute * (rank.ends - rank.table) + setting.master * rank.block
    received = buckets.received(setting, rank.parameters, rank.largest)
    return {**lasting, "gradients": gradients, "buffers": received + gathered.ends(setting, rank.ends)}


def _of_head(rank: Rank) -> float:
    """Bytes of the gradient of a head that is also the embedding. It waits for the embedding's from the loss to the end."""
    return rank.setting.compute * rank.tied


def _lasting(rank: Rank) -> Held:
    """Parameters and optimizer state on the device."""
    setting = rank.setting
    if setting.memory_options.offload.parameters:
        return {}
    m, zero = setting.master, setting.layout.zero
    if setting.layout.servers:  # they hold the optimizer's state
        return {"parameters": setting.compute * rank.parameters}
    own = rank.own
    masters: float = m if zero in (1, 2) or (zero == 0 and setting.compute != m) else 0
    away = setting.memory_options.offload.optimizer
    moments = setting.moments * m * (1 - away)
    if setting.compute != m:  # ZeRO-1 and 2 gather from a rank's rounded values
        masters = masters * (1 - away) + (setting.compute * away if zero in (1, 2) else 0)
    whole = setting.compute * rank.parameters * versions_of(setting.layout, rank.place)
    values = m * rank.shard + rank.secondary if zero == 3 else whole
    return {"parameters": values, "optimizer": (masters + moments) * own}


def _summed(rank: Rank) -> float:
    """Bytes of the gradients that a rank sums over the micro-batches of a step."""
    setting = rank.setting
    g, zero = setting.gradients, setting.layout.zero
    if zero == 3:
        here = not setting.memory_options.offload.parameters
        return setting.master * (rank.parameters if gathered.sums_whole(setting) else rank.shard * here)
    if zero == 0:  # 2BW's later stages also sum the next step's
        return g * rank.parameters * (2 if rank.place and setting.sums_two_steps else 1)
    return g * (rank.shard if setting.each_microbatch else rank.padded)


def _gradients_before(rank: Rank) -> float:
    """Bytes of gradients when the activations are at their most. A step's first backward pass makes those that do not stay."""
    setting = rank.setting
    if setting.batch.microbatches > 1:
        return _summed(rank) + buckets.sent(setting, rank.parameters, rank.largest, rank.largest_inside)
    if setting.layout.zero > 1:
        return 0
    if setting.gradients != setting.compute:
        return _summed(rank)
    shared = setting.replicas > 1 or setting.layout.zero == 1 or setting.layout.servers > 0
    return setting.gradients * rank.packed if shared else 0  # what is not shared is in no bucket


def _gradients_after(rank: Rank, missing: int) -> float:
    """Bytes of gradients in the backward pass of a step's only micro-batch when those of its last `missing` parameters are not there."""
    setting, before = rank.setting, _gradients_before(rank)
    if setting.batch.microbatches > 1:
        return before
    if setting.layout.zero == 3:  # the ends are reduced last
        return max(before, _summed(rank) * (1 - (missing - rank.embed + rank.ends) / rank.parameters))
    if setting.layout.zero == 2:
        return max(before, _summed(rank))
    return max(before, setting.gradients * (rank.parameters - missing))


def _for_weights(rank: Rank, running: bool = True) -> float:
    """Bytes of gradients that are kept for later passes for weights.

    `running`: in a backward pass, with its own gradients of results, or its stage's of weights before they are added to the sums.
    """
    setting = rank.setting
    waiting = weight_passes.pending(setting.layout, setting.batch.microbatches, rank.place)
    if not waiting:
        return 0
    ends = weight_passes.end_bytes(setting) + _end_bytes(setting) if rank.last else 0
    summed = setting.compute * rank.parameters if setting.gradients != setting.compute else 0

    def held(passes: int) -> float:
        blocks = weight_passes.blocks_pending(setting.layout, passes, rank.in_stages)
        return setting.tokens * (blocks * weight_passes.block_bytes(setting) + passes * ends)

    return held(waiting - 1) + running * max(held(1), summed)


def _reduced(rank: Rank) -> Held:
    """Gradients when all are there, and their copies in the optimizer's dtype."""
    setting, summed = rank.setting, _summed(rank)
    if setting.layout.zero == 3 or setting.gradients == setting.master or setting.layout.servers:
        return {"gradients": summed}
    own = rank.own
    return {"gradients": summed + setting.master * own}


def _activations(rank: Rank) -> float:
    """Bytes of the activations in flight."""
    setting = rank.setting
    recompute = setting.memory_options.recompute
    plain, again = block_bytes(setting, "none"), block_bytes(setting, recompute.mode)
    held = rank.in_flight(
        [plain * blocks + (again - plain) * -(-blocks // recompute.every) for blocks in rank.in_stages]
    )
    if setting.memory_options.offload.activations:
        held = min(held, in_flight.blocks_on_device(setting.layout) * largest_block_bytes(setting))
    ends = _end_bytes(setting) * _waiting(setting) if rank.last else 0
    return setting.tokens * (held + ends)


def _of_one_block(rank: Rank) -> float:
    """Bytes of the activations that the first block keeps in one micro-batch."""
    return rank.setting.tokens * block_bytes(rank.setting, rank.setting.memory_options.recompute.mode)


def _end_bytes(setting: Setting) -> float:
    """Bytes per token of the inputs of the last norm and of the head."""
    layout = setting.layout
    return setting.compute * 2 * setting.decoder.dim / (layout.tensor if divides_hidden(layout) else 1)


def _logits(rank: Rank, at_loss: bool) -> float:
    """Bytes of the logits and of what the loss keeps of them, of all micro-batches in flight."""
    if not rank.last:
        return 0
    setting = rank.setting
    if setting.layout.pipeline == 1:
        return setting.tokens * logits.loss_peak(setting) if at_loss else 0
    kept = logits.loss_kept(setting) + logits.output(setting)  # a stage keeps its output until its backward pass
    now = logits.loss_peak(setting) + logits.output(setting) if at_loss else kept
    return setting.tokens * ((_waiting(setting) - 1) * kept + now)


def _waiting(setting: Setting) -> int:
    """Micro-batches that have passed the last stage and wait for their backward pass."""
    if setting.layout.pipeline == 1:
        return 1
    return setting.batch.microbatches if setting.layout.schedule == "gpipe" else 1


def _working(rank: Rank) -> float:
    """Bytes that one block's backward pass holds beside what was kept, with its own activations if it computes them again.

    The blocks of its stage after the last recomputed one have dropped what they kept by then.
    """
    setting = rank.setting
    recompute = setting.memory_options.recompute
    again = 0.0
    if recompute.mode != "none":
        after = min(((blocks - 1) % recompute.every for blocks in rank.in_stages if blocks), default=0)
        again = block_bytes(setting, "none") * (1 - after) - block_bytes(setting, recompute.mode)
    largest = rank.largest_inside if rank.tied else rank.largest
    weights = setting.compute * largest + gathered_weights(setting)
    return setting.tokens * (working_bytes(setting) + max(0.0, again)) + weights


def _messages(rank: Rank) -> float:
    """Bytes of the memory that a pipeline receives in: one hidden state per micro-batch, stage and direction."""
    setting, layout = rank.setting, rank.setting.layout
    if layout.pipeline == 1:
        return 0
    stages = layout.stages_of(rank.place)
    ways = sum((stage > 0) + (stage < layout.stages - 1) for stage in stages)
    if layout.versions > 1:  # received and sent in rounds, one micro-batch at a time
        return ways * 2 * _hidden(setting)
    return ways * setting.batch.microbatches * _hidden(setting)


def _hidden(setting: Setting) -> float:
    """Bytes of what a stage passes on for one micro-batch."""
    layout = setting.layout
    return setting.tokens * setting.compute * setting.decoder.dim / (layout.tensor if divides_hidden(layout) else 1)


def _notes(setting: Setting) -> tuple[str, ...]:
    notes = {
        "A compiled block keeps about as much as this, or less.": setting.memory_options.compile,
        "Stages are those of FLOPs; a profile before the first step may choose others.": profiled(setting.layout),
        "fp8 keeps scaled copies beside what bf16 keeps.": setting.precision == "fp8",
        "Experts are counted as if each got as many tokens as any other.": setting.decoder.experts is not None,
    }
    return tuple(note for note, holds in notes.items() if holds)
