"""Elements and bytes that rank 0 sends in a step per mesh axis and collective, by formula. Imports no torch.

With Ψ parameters on the rank, N replicas, m micro-batches, B rows of s tokens on a replica, width d, L blocks, n = B·s·d elements
of hidden state (÷ C under context parallelism) and f = (t−1)/t:

- data: 2Ψ(N−1)/N elements for ZeRO-0, 1 and 2; stage 2 repeats the reduce-scatter per micro-batch. ZeRO-3 needs 3Ψ(N−1)/N per
  micro-batch; under a pipeline it gathers and reduces once (1910.02054, section 7). Gradients travel in the dtype in which they are
  summed; if stage 2 sends each micro-batch's by gloo, in the compute dtype. From stage 1 on each parameter is sharded by its rows, and
  N·⌈rows/N⌉ of them travel (experts that are spread over E ranks have N/E replicas each); ZeRO-3 shards one of fewer rows than N by its
  columns, if N divides them. With sharding groups (HSDP) of S ranks, S replaces N, and 2(Ψ/S)(G−1)/G are all-reduced between G groups.
  `zero_plus_plus.py` has the messages of ZeRO++.
- tensor: a block all-reduces its two outputs forward and their inputs' gradients backward, 4 times 2nf; the head its input's
  gradient, 2nf. The embedding is sharded by columns: its output is gathered, nf, and each rank takes its own columns of the
  gradient. A tied embedding is sharded by rows, like its head: its output is all-reduced, 2nf. The loss all-reduces 1 and then 2
  numbers per token (3 with label smoothing).
- with sequence parallelism a block gathers its two inputs forward, again backward, and its two outputs' gradients, 6nf, and
  reduce-scatters its outputs and its inputs' gradients, 4nf. The head gathers twice (once, if its loss is computed in chunks) and
  reduce-scatters once. On GPUs the embedding's columns are exchanged for positions, and back in its gradient, 2nf/t; gloo has no
  all-to-all between shards, so there its output is gathered, and so is its gradient. A tied one's output is reduce-scattered, and
  its gradient gathered. Norms see a part of the tokens: 2L + 1 gradients of d are all-reduced, by ZeRO-2 and 3 with each
  micro-batch.
- with more than two replicas the first tensor rank sends the reduced gradients of what is sharded over none of them, of norms and routers,
  to the others once per step: n(t−1)/t elements in the dtype of the values that are kept, of n that a rank has after ZeRO. With sharding
  groups it does so if there are more than two of them, or more than two replicas in each.
- tensor on a grid: `grid_traffic.py`.
- full recompute repeats what a block sends before its last reduction: two gathers and one reduction, or one all-reduce.
- Ulysses: U ranks exchange q, k, v and the output, n = B·s/C·head size·(2·heads + 2·key heads), forward and backward. Key heads
  include the copies that are made where U does not divide their number.
- ring: R ranks pass keys and values, n = B·s/C·head size·key heads each, R − 1 times forward (2n), and backward with their
  gradients in fp32 or wider (2n + 2n). In a double ring of W windows W − 1 of these messages go from window to window.
- Ring Self-Attention: the same.
- all-gather: the same elements, keys and values by all-gathers, the gradients by a reduce-scatter.
- full recompute exchanges once more what a block's attention exchanges forward; where backward passes run in two halves, once in each
  half, but for the block that both halves meet at. Selective recompute does so for Ulysses and Ring Self-Attention; of the other
  methods it keeps the result.
- pipeline: each boundary between ranks carries n forward and n back; with sequence parallelism a rank's part of it.
- parameter servers: a worker pushes Ψ gradients and pulls Ψ values, once per step; nothing is sent over the data axis. With a clock of
  its own it also sends each server two requests of nine numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..context_axes import key_copies, windows
from ..layout import divides_hidden, own_clocks
from . import cube_traffic, first_rank, grid_traffic, parameter_server, whole_gradients, zero_plus_plus
from .block_memory import keeps_attention
from .estimate import Setting, axis_names, strides
from .model_shape import Weight

#: Axis and collective.
Flow = tuple[str, str]


@dataclass(frozen=True)
class Moved:
    """What rank 0 sends by one collective on one axis in a step."""

    words: str
    elements: float
    bytes: float

    def __add__(self, other: "Moved") -> "Moved":
        words = self.words if other.words in self.words else f"{self.words} + {other.words}"
        return Moved(words, self.elements + other.elements, self.bytes + other.bytes)


@dataclass(frozen=True)
class Traffic:
    """The traffic of the axes that have a formula; for the others the reason why they have none."""

    moved: dict[Flow, Moved]
    unknown: dict[str, str]


def traffic(setting: Setting) -> Traffic:
    """The traffic under the names that a probe counts by."""
    names = axis_names(setting.layout)
    moved: dict[Flow, Moved] = {}
    unknown: dict[str, str] = {}
    for axis, (reason, of) in _parts(setting).items():
        if axis in names and reason:
            unknown[names[axis]] = reason
        elif axis in names:
            for kind, one in of():
                flow = (names[axis], kind)
                moved[flow] = moved[flow] + one if flow in moved else one
    return Traffic({flow: one for flow, one in moved.items() if one.elements and flow[0] not in unknown}, unknown)


def estimated_bytes(setting: Setting, axes: Iterable[str]) -> dict[Flow, float]:
    """Bytes that rank 0 sends in a step over these axes of the mesh, by axis and collective.

    By the same formulas, also where `traffic` has a reason in place of a number: what they give there is close enough for an estimate of
    time, and is not what a probe counts.
    """
    parts, there = _parts(setting), strides(setting.layout)
    found: dict[Flow, float] = {}
    for axis in axes:  # in this order: equal layouts are to have equal times, to the last bit
        for kind, one in parts[axis][1]() if axis in parts and axis in there else ():
            if one.bytes:
                found[axis, kind] = found.get((axis, kind), 0.0) + one.bytes
    return found


Sent = Iterator[tuple[str, Moved]]
#: Axis of the mesh → why there is no formula for its traffic, if there is none, and the traffic.
_Parts = dict[str, tuple[str | None, Callable[[], Sent]]]


def _parts(setting: Setting) -> _Parts:
    return {
        **_replicas(setting),
        **_tensors(setting),
        "ulysses": (None, lambda: _ulysses(setting)),
        **{axis: (None, _around(setting, axis)) for axis in ("ring", "inner_ring", "outer_ring")},
        "pipeline": (_why_not_pipeline(setting), lambda: _pipeline(setting)),
        "parameter_server": (None, lambda: _pushes(setting)),
    }


def _held(setting: Setting) -> list[Weight]:
    return setting.decoder.held(setting.layout, 0)


def _replicas(setting: Setting) -> _Parts:
    """Gradients and parameters: over all replicas, or inside and between sharding groups."""
    reason = "The two ends of a pipeline share the tied embedding." if setting.tied_ends else None
    smaller: _Parts = {
        "secondary": (reason, lambda: _by_part(zero_plus_plus.gathered_inside(setting, _held(setting)))),
        "node": (reason, lambda: _by_part(zero_plus_plus.reduced_inside(setting, _held(setting)))),
        "nodes": (reason, lambda: _by_part(zero_plus_plus.reduced_across(setting, _held(setting)))),
    }
    if setting.layout.shard is None:
        return {"replica": (reason, lambda: _data(setting)), **smaller}
    return {"shard": (reason, lambda: _data(setting)), "shard_replica": (reason, lambda: _between(setting)), **smaller}


def _data(setting: Setting) -> Sent:
    n, c = setting.cut, setting.compute
    times = 1 if setting.layout.pipeline > 1 else setting.batch.microbatches
    if setting.layout.zero == 0:
        elements = setting.decoder.chunks_by_spread(setting.layout, 1).items()
        part = sum(2 * held * (ranks - 1) / ranks for spread, held in elements if (ranks := _sharing(n, spread)))
        yield "all_reduce", _moved("2Ψ(N−1)/N", part, setting.sent)
        return
    chunks = setting.decoder.chunks_by_spread(setting.layout, n).items()
    part = sum(ranks * held * (ranks - 1) / ranks for spread, held in chunks if (ranks := _sharing(n, spread)))
    if setting.layout.zero == 3:
        turns = f" × {times} micro-batches" * (times > 1)
        gathers = 1 if setting.layout.pipeline > 1 else 2 * times
        if zero_plus_plus.changes_gathers(setting):
            yield from _by_part(zero_plus_plus.gathered(setting, _held(setting)))
        else:
            yield "all_gather", _moved(f"{'' if gathers == 1 else 2}Ψ(N−1)/N{turns}", gathers * part, c)
        yield from _reduced(setting, times, part, setting.master)
        return
    yield from _reduced(setting, times if setting.each_microbatch else 1, part, setting.sent)
    yield "all_gather", _moved("Ψ(N−1)/N", part, c)


def _sharing(ranks: int, spread: int) -> int:
    """Of `ranks` replicas those that have the same parameters, where `spread` neighbours have different ones of a kind."""
    return max(1, ranks // spread)


def _reduced(setting: Setting, times: int, part: float, element_bytes: int) -> Sent:
    """Gradients, each `times` a step."""
    if zero_plus_plus.quantises_gradients(setting):
        yield from _by_part(zero_plus_plus.reduced(setting, _held(setting)))
        return
    turns = f" × {times} micro-batches" * (times > 1)
    yield "reduce_scatter", _moved(f"Ψ(N−1)/N{turns}", times * part, element_bytes)


def _pushes(setting: Setting) -> Sent:
    """Gradients of a worker, which rank 0 is; the servers send it as many values."""
    yield "send", _moved("Ψ to the servers", parameter_server.pushed(setting), setting.gradients)
    if own_clocks(setting.layout):
        yield "send", _moved("requests", parameter_server.requested(setting), 8)


def _between(setting: Setting) -> Sent:
    times = 1 if setting.layout.pipeline > 1 else setting.batch.microbatches
    turns = f" × {times} micro-batches" * (times > 1)
    chunks = setting.decoder.chunks_by_spread(setting.layout, setting.cut).items()
    part = sum(
        2 * held * (groups - 1) / groups
        for spread, held in chunks
        if (groups := _sharing(setting.replicas, spread) // _sharing(setting.cut, spread))
    )
    yield "all_reduce", _moved(f"2(Ψ/S)(G−1)/G{turns}", times * part, setting.master)


def _tensors(setting: Setting) -> _Parts:
    """The tensor axis, the two of a grid, or the three of a cube."""
    if setting.layout.tensor_shape is None:
        return {"tensor": (_why_not_tensor(setting), lambda: _tensor(setting))}
    if setting.layout.tensor_shape.mode == "3d":
        return {
            "tensor_depth": (None, lambda: _by_part(cube_traffic.along_depth(setting))),
            "tensor_row": (None, lambda: _by_part(cube_traffic.along_row(setting))),
            "tensor_column": (None, lambda: _by_part(cube_traffic.along_column(setting))),
        }
    return {
        "tensor_column": (None, lambda: _by_part(grid_traffic.along_row(setting))),
        "tensor_row": (None, lambda: _by_part(grid_traffic.along_column(setting))),
    }


def _by_part(sent: Iterable[grid_traffic.Part]) -> Sent:
    for part in sent:
        yield part.kind, _moved(part.words, part.elements, part.element_bytes)


def _why_not_tensor(setting: Setting) -> str | None:
    """Why there is no formula for the traffic of the tensor axis, if there is none."""
    layout = setting.layout
    reasons = {
        "There is no formula for biases, learned positions and norms of heads over the tensor axis.": not setting.decoder.plain,
        "There is no formula for compiled blocks, whose messages cannot be counted.": setting.memory_options.compile,
        "There is no formula for ZeRO-3 with tensor parallelism in a pipeline.": layout.zero == 3
        and layout.pipeline > 1,
        "There is no formula for recompute under this schedule.": (
            setting.memory_options.recompute.mode == "full"
            and layout.pipeline > 1
            and layout.schedule not in ("1f1b", "gpipe")
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _tensor(setting: Setting) -> Sent:
    layout, decoder = setting.layout, setting.decoder
    t, blocks, last = layout.tensor, first_rank.blocks(setting), first_rank.has_head(setting)
    f, tokens = (t - 1) / t, setting.tokens * setting.batch.microbatches
    n, c, wide = tokens * decoder.dim, setting.compute, max(4, setting.compute)
    full = setting.memory_options.recompute.mode == "full"
    again = full * sum(count for _, count in first_rank.recomputed(setting))
    loss = (3 + setting.smoothing) * 2 * tokens * f * last
    columns, rows = (0, 1) if decoder.tied else (1, 0)  # of the embedding
    whole = whole_gradients.elements(setting, whole_gradients.in_one_dimension)
    yield "broadcast", _moved("gradients of what is whole", whole * f, setting.master)
    if not layout.sequence:
        yield "all_reduce", _moved("4 × 2nf per block", (4 * blocks + again + last + rows) * 2 * n * f, c)
        yield "all_reduce", _moved("loss", loss, wide)
        yield "all_gather", _moved("nf of the embedding", n * f * columns, c)
        return
    at_once = layout.zero > 1 and layout.pipeline == 1
    times = setting.batch.microbatches if at_once else 1
    norms = (2 * blocks + last) * 2 * decoder.dim * f * times
    head = last * (2 if setting.loss_chunk is None else 1)
    exchanged = columns * (setting.device == "cuda")  # gloo has no all-to-all between shards
    gathered = 6 * blocks + 2 * again + head + 2 * (columns - exchanged) + rows
    yield "all_gather", _moved("6nf per block", gathered * n * f, c)
    yield "all_to_all", _moved("2nf/t of the embedding", 2 * exchanged * n / t * f, c)
    yield "reduce_scatter", _moved("4nf per block", (4 * blocks + again + last + rows) * n * f, c)
    yield "all_reduce", _moved("norms", norms, c if at_once and layout.zero == 3 else setting.sent)
    yield "all_reduce", _moved("loss", loss, wide)


def _heads(setting: Setting) -> tuple[float, float]:
    """Elements of queries and of keys, with their copies, of rank 0 per step and block."""
    tokens, decoder = setting.tokens * setting.batch.microbatches, setting.decoder
    key = decoder.key * key_copies(setting.layout, decoder.kv_heads)
    return tokens * decoder.query / setting.layout.tensor, tokens * key / setting.layout.tensor


def _ulysses(setting: Setting) -> Sent:
    query, key = _heads(setting)
    u, blocks = setting.layout.ulysses, first_rank.blocks(setting)
    forward = (2 * query + 2 * key) * (u - 1) / u
    times = 2 * blocks + first_rank.times_recomputed(setting)
    yield "all_to_all", _moved("2n(U−1)/U per block", times * forward, setting.compute)


def _around(setting: Setting, axis: str) -> Callable[[], "Sent"]:
    """What a single ring sends, or one of the two axes of a double ring."""
    layout = setting.layout
    outer = windows(layout)
    words, turns = {
        "ring": ("6n(R−1)", layout.ring - 1),
        "inner_ring": ("6nW(R/W−1)", layout.ring - outer),
        "outer_ring": ("6n(W−1)", outer - 1),
    }[axis]
    return lambda: _ring(setting, f"{words} per block", turns)


def _ring(setting: Setting, words: str, turns: int) -> Sent:
    _, key = _heads(setting)
    blocks, wide = first_rank.blocks(setting), max(4, setting.compute)
    kept = setting.memory_options.recompute.mode == "selective" and keeps_attention(setting)
    narrow = 4 * blocks + (0 if kept else 2 * first_rank.times_recomputed(setting))
    gathers = setting.layout.context_method == "all-gather"
    yield "all_gather" if gathers else "send", _moved(words, narrow * key * turns, setting.compute)
    yield "reduce_scatter" if gathers else "send", _moved(words, 2 * blocks * key * turns, wide)


def _why_not_pipeline(setting: Setting) -> str | None:
    return "The two ends of a pipeline share the tied embedding." if setting.tied_ends else None


def _pipeline(setting: Setting) -> Sent:
    layout = setting.layout
    mine = {stage for stage, _ in setting.decoder.stages(layout, 0)}
    forward = sum(stage + 1 not in mine for stage in mine if stage + 1 < layout.stages)
    back = sum(stage - 1 not in mine for stage in mine if stage)
    n = setting.tokens * setting.batch.microbatches * setting.decoder.dim
    part = n / (layout.tensor if divides_hidden(layout) else 1)
    yield "send", _moved("n per boundary and direction", (forward + back) * part, setting.compute)


def _moved(words: str, count: float, element_bytes: int) -> Moved:
    return Moved(words, count, count * element_bytes)
