"""Elements that rank 0 of a grid of q × q tensor ranks sends in a step, by formula (Xu et al., 2104.05343, table 1). Imports no torch.

With N tokens of a grid in a step (1/d of a data rank's, where d grids share a micro-batch), m micro-batches, f = (q−1)/q, and per layer
a weight of in × out elements:

- a layer of a block (C = A·B forward): its input travels along the row twice, and the sums of its gradient once, N·in/q · f each; its
  weight travels along the column twice per micro-batch, and the sums of its gradient once, in·out/q · f each.
- the head (C = A·Bᵀ forward): along the row its logits are reduced once and their gradient travels twice, N·vocab/q · f each; its
  weight as above.
- the embedding: along the column its table travels once per micro-batch, and the sums of its gradient once, vocab·dim/q · f each.
- learned positions: as the embedding, a table of as many rows as there are positions.
- a norm: along the row 1 number per token forward and 1 backward, in all-reduces of 2 · N/q · f; along the column its gradient, once
  per micro-batch. LayerNorm has twice as many of each.
- biases: along the column the gradients of the rank's own, once per micro-batch, in all-reduces.
- norms of heads: the same along row and column, whole.
- with more than two replicas, once per step the first rank's reduced gradients: along the column those of norms and biases, n·f of the n
  that a rank has after ZeRO, and along both lines those of norms of heads.
- the loss: along the row 1 and then 2 numbers per token (3 with label smoothing).
- full recompute repeats what a block sends forward.
- in a pipeline the blocks are those of rank 0's stages. Head, last norm and loss are among them only where stages go down the ranks and
  back up. Where a schedule splits a backward pass, norms run theirs in both halves (`first_rank.py`).

Between grids (Wang et al., 2105.14500) gradients alone are sent, once per step, with those of other replicas: see `communication.py`.

A broadcast and a reduction of n elements are n·f each, the mean over ranks, as `telemetry/comm_counter.py` counts them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import first_rank
from .estimate import Setting
from .model_shape import Weight, share
from .whole_gradients import elements, is_copied, is_vector


@dataclass(frozen=True)
class Part:
    """What one collective sends in a step, for one reason."""

    kind: str
    words: str
    elements: float
    element_bytes: int


def along_row(setting: Setting) -> Iterator[Part]:
    """What rank 0 sends to the ranks of its row, which have other columns."""
    decoder, f = setting.decoder, _fraction(setting)
    tokens = setting.tokens * setting.batch.microbatches / setting.layout.division.rows * f
    blocks, again, head = first_rank.blocks(setting), first_rank.times_recomputed(setting), first_rank.has_head(setting)
    c, wide = setting.compute, widest(setting)
    inputs = _inputs(setting) * tokens
    scores = head * decoder.vocab * tokens
    yield Part("broadcast", "2N·in/q · f per layer", (2 * blocks + again) * inputs + 2 * scores, c)
    yield Part("reduce", "N·in/q · f per layer", blocks * inputs + scores, c)
    yield Part("all_reduce", "norms", sums_of_norms(setting) * 2 * tokens, wide)
    yield Part("all_reduce", "loss", head * (3 + setting.smoothing) * 2 * tokens, wide)
    yield from gradients_of_copies(setting, 0)
    yield from reduced_gradients(setting, is_copied)


def along_column(setting: Setting) -> Iterator[Part]:
    """What rank 0 sends to the ranks of its column, which have other rows."""
    decoder, q = setting.decoder, setting.layout.division.columns
    each = _fraction(setting) * setting.batch.microbatches
    blocks, again, head = first_rank.blocks(setting), first_rank.times_recomputed(setting), first_rank.has_head(setting)
    c, wide = setting.compute, widest(setting)
    weights = _weights(setting) * each
    own = share(decoder.dim, q, 0)
    table, positions = decoder.vocab * own * each, decoder.positions * own * each
    travels = (2 * blocks + again) * weights + (2 * head + 1) * table + positions
    yield Part("broadcast", "2in·out/q · f per layer", travels, c)
    yield Part("reduce", "in·out/q · f per layer", blocks * weights + head * table, c)
    yield Part("reduce", "embedding", table + positions, wide)
    yield Part("all_reduce", "norms", gradients_of_norms(setting) * 2 * own * each, wide)
    yield from gradients_of_copies(setting, biases_into(setting) + biases_out_of(setting))
    yield from reduced_gradients(setting, is_vector)


def _fraction(setting: Setting) -> float:
    return 1 - 1 / setting.layout.division.columns


def widest(setting: Setting) -> int:
    """Bytes of a number in fp32 or wider."""
    return max(4, setting.compute)


def _inputs(setting: Setting) -> int:
    """The widths of the inputs of a block's products: one for q, k and v, one for gate and up."""
    of = setting.decoder
    return 2 * of.dim + of.query + of.hidden


def _weights(setting: Setting) -> float:
    """Elements of a block's weights in rank 0's columns."""
    of, q = setting.decoder, setting.layout.division.columns
    columns = of.query // q + 2 * (of.key // q) + (1 + of.gated) * (of.hidden // q)
    return of.dim * columns + (of.query + of.hidden) * share(of.dim, q, 0)


def statistics(setting: Setting) -> int:
    """Numbers per token of a norm forward, and again backward, and parameters per column: of LayerNorm two, of RMSNorm one."""
    return 2 if setting.decoder.layer_norms else 1


def sums_of_norms(setting: Setting) -> float:
    """Numbers per token that rank 0's norms sum over the ranks which divide a hidden state, forward and backward."""
    times = 2 * first_rank.norms(setting) + first_rank.norms_twice(setting) + 2 * first_rank.times_recomputed(setting)
    return statistics(setting) * times


def gradients_of_norms(setting: Setting) -> float:
    """Gradients per column and micro-batch that rank 0's norms sum over the ranks which hold copies of their parameters."""
    return statistics(setting) * (first_rank.norms(setting) + first_rank.norms_twice(setting))


def biases_into(setting: Setting) -> int:
    """Elements on rank 0 of the biases of a block's layers into it: q, k and v, and those of the feed-forward before its last."""
    of, side = setting.decoder, setting.layout.division.columns
    columns = of.qkv_biases * (of.query + 2 * of.key) + of.other_biases * (1 + of.gated) * of.hidden
    return columns // side


def biases_out_of(setting: Setting) -> int:
    """The same of its two layers out of it."""
    return setting.decoder.other_biases * 2 * share(setting.decoder.dim, setting.layout.division.columns, 0)


def gradients_of_copies(setting: Setting, biases: int) -> Iterator[Part]:
    """Sums along a line whose ranks hold copies of a block's `biases` (elements of a rank) and norms of heads, with each micro-batch."""
    of = setting.decoder
    each = 2 * _fraction(setting) * setting.batch.microbatches * first_rank.blocks(setting)
    if biases:
        yield Part("all_reduce", "biases", biases * each, setting.compute)
    if of.head_norms:
        yield Part("all_reduce", "norms of heads", 2 * (of.query // of.heads) * each, setting.compute)


def reduced_gradients(setting: Setting, is_whole: Callable[[Weight], bool]) -> Iterator[Part]:
    """The reduced gradients of parameters for which `is_whole`, which the first rank of a line sends to the others."""
    yield Part(
        "broadcast", "gradients of what is whole", elements(setting, is_whole) * _fraction(setting), setting.master
    )
