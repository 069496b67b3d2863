"""What the first rank of a pipeline computes in a step, in blocks, norms and passes: its traffic follows from them. Imports no torch.

It always has the embedding. Where stages go down the ranks and back up, it has the head and the loss too.
"""

from .estimate import Setting


def blocks(setting: Setting) -> int:
    """Its blocks, in all of its stages."""
    return sum(count for _, count in setting.decoder.stages(setting.layout, 0))


def has_head(setting: Setting) -> bool:
    """Whether it has the last norm, the head and the loss."""
    return any(stage == setting.layout.stages - 1 for stage, _ in setting.decoder.stages(setting.layout, 0))


def norms(setting: Setting) -> int:
    """Its norms of hidden states: two per block, and the last one."""
    return 2 * blocks(setting) + has_head(setting)


def blocks_twice(setting: Setting) -> float:
    """How many blocks run their backward pass in two halves, per micro-batch.

    The first stage, which sends no gradient of its input, has whole backward passes.
    """
    return in_halves(setting) * sum(count for stage, count in setting.decoder.stages(setting.layout, 0) if stage)


def head_twice(setting: Setting) -> float:
    """The same of last norm and head."""
    return in_halves(setting) if has_head(setting) and setting.layout.stages > 1 else 0


def norms_twice(setting: Setting) -> float:
    """How many norms run their backward pass a second time: it computes the gradients of input and parameters together."""
    return 2 * blocks_twice(setting) + head_twice(setting)


def recomputed(setting: Setting) -> list[tuple[int, int]]:
    """For each of its stages the number, and how many of the blocks are recomputed, in any mode: every n-th one."""
    recompute, stages = setting.memory_options.recompute, setting.decoder.stages(setting.layout, 0)
    return [(stage, 0 if recompute.mode == "none" else -(-count // recompute.every)) for stage, count in stages]


def times_recomputed(setting: Setting) -> float:
    """How often its blocks run forward again, per micro-batch.

    Where a stage after the first runs backward in two halves, each half computes all of the stage's blocks again, but for the last of the
    first half. It is the first of the second half, which follows at once on this rank, and what it had dropped is still there
    (`split_checkpoint.py`).
    """
    found = recomputed(setting)
    twice = sum(count - 1 for stage, count in found if stage and count)
    return sum(count for _, count in found) + in_halves(setting) * twice


def in_halves(setting: Setting) -> float:
    """The part of the micro-batches whose backward passes it runs in two halves, in its stages after the first one."""
    match setting.layout.schedule:
        case "interleaved-zb" | "zbv":
            return 1
        case "dualpipev":  # the others are in pairs, or after them
            return (setting.layout.pipeline - 1) / setting.batch.microbatches
    return 0  # with ZB-H1 and ZB-H2 it has no other stage
