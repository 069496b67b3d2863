"""Which layouts a model may take: one function per axis, from numbers alone, before any machine is taken. Imports no torch."""

import math

from .batch import Batch
from .layout import Layout, ModelFacts, Refusal, divisors, profiled
from .memory_options import splits_backward


def check_layout(layout: Layout, facts: ModelFacts, global_batch: int, seq_len: int) -> Batch:
    """Refuse what this model cannot do on this layout; return the batch maths. Raises `Refusal`."""
    _check_parameter_server(layout, facts)
    _check_zero(layout)
    _check_context(layout, facts, seq_len)
    _check_tensor(layout, facts, seq_len // layout.context)
    _check_pipeline(layout, facts)
    _check_expert(layout, facts)
    return layout.batch(global_batch)


def _check_parameter_server(layout: Layout, facts: ModelFacts) -> None:
    """A worker computes the whole model, and a server holds whole parameters: no axis may shard them."""
    if not layout.servers:
        return
    leave = "or leave layout.parameter_server out."
    sharded = {axis: degree for axis, degree in layout.degrees.items() if axis != "data"} | {"expert": layout.expert}
    axis = next((axis for axis, degree in sharded.items() if degree > 1), None)
    if axis is not None:
        message = f"a worker of parameter servers computes the whole model, and {axis} {sharded[axis]} would shard it."
        raise Refusal(f"layout.{axis}", message, f"Set layout.{axis} to 1, {leave}")
    if layout.zero:
        message = f"the servers hold the optimizer's state already, and ZeRO-{layout.zero} would shard it over workers."
        raise Refusal("layout.zero", message, f"Set layout.zero to 0, {leave}")
    if facts.experts is not None:
        message = "parameter servers have no path for the experts' balancing biases, which each step changes."
        raise Refusal("layout.parameter_server", message, "Use a model without experts, or leave it out.")


def _check_zero(layout: Layout) -> None:
    if layout.zero and layout.data * layout.context * layout.division.copies == 1:
        raise Refusal(
            "layout.zero",
            f"ZeRO-{layout.zero} shards over the data and context axes, whose degrees are 1.",
            "Set layout.data to 2 or more, or layout.zero to 0.",
        )
    _check_shard(layout)


def _check_shard(layout: Layout) -> None:
    """HSDP: groups of equal size, smaller than all replicas together."""
    if layout.shard is None:
        return
    if layout.zero != 3:
        raise Refusal(
            "layout.shard",
            f"only ZeRO-3 shards inside groups of replicas; layout.zero is {layout.zero}.",
            "Set layout.zero to 3, or leave layout.shard out.",
        )
    replicas = layout.degrees["data"] * layout.degrees["context"]
    legal = _check_groups(
        "layout.shard", layout.shard, replicas, f"{replicas} replicas do not fall into two or more groups"
    )
    _check_shard_of_experts(layout, layout.shard, legal)


def _check_shard_of_experts(layout: Layout, shard: int, sizes: list[int]) -> None:
    """Every group has as many replicas of one expert as of another, or every expert has at most one in a group."""
    legal = [d for d in sizes if d % layout.expert == 0 or layout.expert % d == 0]
    if shard not in legal:
        raise Refusal(
            "layout.shard",
            f"in groups of {shard} replicas some experts, spread over {layout.expert}, would stand more often than others.",
            f"Use one of {legal}, or leave layout.shard out." if legal else "Leave layout.shard out.",
        )


def _check_context(layout: Layout, facts: ModelFacts, seq_len: int) -> None:
    if layout.context % layout.ulysses:
        raise Refusal(
            "layout.ulysses",
            f"{layout.ulysses} does not divide the context degree {layout.context}.",
            f"Use one of {divisors(layout.context)}, or layout.context: {layout.ulysses}.",
        )
    _check_ulysses_heads(layout, facts)
    _check_windows(layout)
    parts = _sequence_parts(layout, layout.ring)
    if seq_len % parts:
        legal = [c for c in range(1, layout.context) if not _cannot_cut(layout, c, seq_len)]
        raise Refusal(
            "layout.context",
            f"a sequence of {seq_len} tokens does not cut into {parts} equal parts"
            + (" (a ring gives each rank an early and a late one)." if layout.ring > 1 else "."),
            f"Use a data.seq_len that is a multiple of {parts}, for example {-(-seq_len // parts) * parts}; "
            f"context degrees that work with ulysses {layout.ulysses}: {legal}.",
        )


def _check_ulysses_heads(layout: Layout, facts: ModelFacts) -> None:
    """Every Ulysses rank takes an equal part of the attention heads that tensor parallelism leaves.

    Key/value heads are copied where there are fewer than ranks.
    """
    heads = facts.heads
    if layout.ulysses > 1 and heads is not None and heads % (layout.ulysses * layout.tensor):
        legal = [u for u in divisors(layout.context) if heads % (u * layout.tensor) == 0]
        raise Refusal(
            "layout.ulysses",
            f"{heads} (attention heads) is not divisible by ulysses {layout.ulysses} × tensor {layout.tensor}.",
            f"Ulysses degrees that work here: {legal or [1]}; the rest of the context is a ring.",
        )


def _check_windows(layout: Layout) -> None:
    """Double ring: windows of equal size, at least two of them."""
    if layout.ring_window is None:
        return
    if layout.context_method != "ring":
        raise Refusal(
            "layout.ring_window",
            f"windows are parts of a ring; layout.context_method is {layout.context_method}.",
            "Leave layout.ring_window out, or set layout.context_method to ring.",
        )
    message = f"a ring of {layout.ring} ranks does not fall into two or more windows"
    _check_groups("layout.ring_window", layout.ring_window, layout.ring, message)


def _check_groups(field: str, size: int, whole: int, message: str) -> list[int]:
    """The sizes of two or more equal groups of `whole` ranks. Raises `Refusal` if `size` is none of them."""
    legal = [d for d in divisors(whole) if 1 < d < whole]
    if size not in legal:
        near = min(legal, key=lambda d: abs(d - size), default=None)
        remedy = f"Leave {field} out." if near is None else f"Use {near}, or one of {legal}."
        raise Refusal(field, f"{message} of {size}.", remedy)
    return legal


def _sequence_parts(layout: Layout, ring: int) -> int:
    """What `seq_len` must be a multiple of: zigzag cuts 2·ring chunks, and Ulysses each rank's two into `ulysses` equal parts."""
    return 1 if ring * layout.ulysses == 1 else math.lcm(ring * layout.ulysses, 2 * ring if ring > 1 else 1)


def _cannot_cut(layout: Layout, context: int, seq_len: int) -> bool:
    return context % layout.ulysses != 0 or seq_len % _sequence_parts(layout, context // layout.ulysses) != 0


def _check_tensor(layout: Layout, facts: ModelFacts, seq_len: int) -> None:
    if layout.tensor_shape is not None:
        _check_grid(layout, facts)
        return
    t = layout.tensor
    if t == 1:
        return
    checks = (
        ("attention heads", facts.heads),
        ("key/value heads", facts.kv_heads),
        ("feed-forward width", facts.hidden),
        ("sequence length" + " of a context rank" * (layout.context > 1), seq_len if layout.sequence else None),
    )
    for what, number in checks:
        if number is not None and number % t:
            legal = _legal_tensor(layout, facts, seq_len)
            raise Refusal(
                "layout.tensor",
                f"{number} ({what}) is not divisible by {t}.",
                f"Tensor degrees that divide this model: {legal}.",
            )


def _check_grid(layout: Layout, facts: ModelFacts) -> None:
    """Every column of a grid has as many heads and as much of the feed-forward as the others."""
    assert layout.tensor_shape is not None
    q = layout.division.columns
    numbers = (
        ("attention heads", facts.heads),
        ("key/value heads", facts.kv_heads),
        ("feed-forward width", facts.hidden),
    )
    for what, number in numbers:
        if number is not None and number % q:
            legal = [d for d in divisors(number) if all(n % d == 0 for _, n in numbers if n is not None)]
            shapes = layout.tensor_shape.of_sides(legal)
            others = f"Grids that divide this model: {shapes}; or set" if shapes else "No grid divides this model: set"
            raise Refusal(
                "layout.tensor",
                f"{number} ({what}) is not divisible by the {q} columns of the grid.",
                f"{others} layout.tensor to a number.",
            )
    _check_beside_grid(layout, facts)


def _check_beside_grid(layout: Layout, facts: ModelFacts) -> None:
    """What a grid does not go with."""
    number = "Or set layout.tensor to a number."
    if facts.experts is not None:
        raise Refusal(
            "layout.tensor", "a grid has no experts: they are cut in one dimension.", "Set layout.tensor to a number."
        )
    if layout.context > 1:
        raise Refusal(
            "layout.context",
            "the ranks of a grid have whole sequences, which context parallelism would divide.",
            f"Set layout.context to 1. {number}",
        )
    if layout.zero == 3:
        raise Refusal(
            "layout.zero",
            "ZeRO-3 gathers whole parameters for each layer, and a grid never holds one.",
            f"Set layout.zero to 2. {number}",
        )


def _legal_tensor(layout: Layout, facts: ModelFacts, seq_len: int) -> list[int]:
    numbers = [n for n in (facts.heads, facts.kv_heads, facts.hidden) if n is not None]
    if layout.sequence:
        numbers.append(seq_len)
    return [d for d in divisors(min(numbers, default=1)) if all(n % d == 0 for n in numbers)]


def _check_pipeline(layout: Layout, facts: ModelFacts) -> None:
    _check_vertical_sync(layout)
    if layout.pipeline == 1:
        return
    if facts.layers is not None and layout.stages > facts.layers:
        fits = max(1, facts.layers // layout.stages_per_rank)
        raise Refusal(
            "layout.pipeline",
            f"{layout.stages} stages ({layout.pipeline} ranks × {layout.stages_per_rank}) are more than the model's {facts.layers} layers.",
            f"Use layout.pipeline of at most {fits}.",
        )
    _check_blocks(layout, facts)
    _check_profile(layout, facts)


def _check_vertical_sync(layout: Layout) -> None:
    if layout.vertical_sync and layout.schedule != "pipedream":
        raise Refusal(
            "layout.vertical_sync",
            f"under the {layout.schedule} schedule all stages use one version of the weights already.",
            "Leave layout.vertical_sync out, or set layout.schedule to pipedream.",
        )


def _check_blocks(layout: Layout, facts: ModelFacts) -> None:
    """Every stage has its number, and all blocks of the model are in one."""
    if (blocks := layout.pipeline_blocks) is None:
        return
    each = f" ({layout.pipeline} ranks × {layout.stages_per_rank})" if layout.stages_per_rank > 1 else ""
    if len(blocks) != layout.stages:
        message = f"blocks has {len(blocks)} numbers, and the {layout.schedule} schedule {layout.stages} stages{each}."
        raise Refusal("layout.pipeline", message, f"Give {layout.stages} numbers, or leave blocks out.")
    if 0 in blocks[1:-1]:
        message = f"stage {blocks.index(0, 1)} has no block, and neither the embedding nor the head."
        raise Refusal("layout.pipeline", message, "Only the first and the last stage may have 0.")
    if facts.layers not in (None, sum(blocks)):
        message = f"the stages have {sum(blocks)} blocks together, and the model has {facts.layers}."
        raise Refusal("layout.pipeline", message, f"Give numbers whose sum is {facts.layers}, or leave blocks out.")


def _check_profile(layout: Layout, facts: ModelFacts) -> None:
    """A profile measures modules before anything is learned."""
    if profiled(layout) and facts.experts is not None:
        message = "a profile has no router's choices, on which the time of an expert depends."
        raise Refusal("layout.pipeline", message, "Leave split: profile out: FLOPs decide then.")


def _check_expert(layout: Layout, facts: ModelFacts) -> None:
    replicas = layout.degrees["data"] * layout.degrees["context"]
    if layout.expert == 1:
        return
    if facts.experts is None:
        raise Refusal(
            "layout.expert",
            f"the model has no experts to spread over {layout.expert} ranks.",
            "Set layout.expert to 1, or model.family to moe.",
        )
    if facts.experts % layout.expert or replicas % layout.expert:
        legal = [d for d in divisors(facts.experts) if replicas % d == 0]
        raise Refusal(
            "layout.expert",
            f"{layout.expert} must divide the model's {facts.experts} experts and the {replicas} replicas (data × context).",
            f"Legal expert degrees here: {legal}.",
        )


def check_whole_samples(layout: Layout) -> None:
    """Refuse layouts that cut a sample, or have ranks without one: those of a source of the user's own are whole."""
    degrees = {axis: getattr(layout, axis) for axis in ("tensor", "context", "expert")}
    for axis, degree in {**degrees, "parameter_server": 1 + layout.servers}.items():
        if degree > 1:
            raise Refusal(
                f"layout.{axis}",
                "samples of a source of your own cannot be cut yet, and every rank needs whole ones.",
                f"Leave layout.{axis} out. Data parallelism, ZeRO 0 to 3 and pipelines work.",
            )
    if splits_backward(layout):
        raise cannot_split(layout)
    if profiled(layout):
        raise Refusal(
            "layout.pipeline",
            "a profile times modules one by one with token ids, and a source of your own has other samples.",
            "Leave split: profile out, or say the blocks of each stage: pipeline: {stages: 2, blocks: [2, 2]}.",
        )


def cannot_split(layout: Layout) -> Refusal:
    """What refuses the layout's schedule for blocks that share weights, or values that weights make."""
    return Refusal(
        "layout.schedule",
        f"{layout.schedule} splits the backward pass, and torch cannot split that of blocks which share what their stage computes, "
        "such as a bias or an encoder's output.",
        "Set layout.schedule to interleaved, 1f1b or gpipe.",
    )
