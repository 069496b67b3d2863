"""Elements that rank 0 of a cube of l × l × l tensor ranks sends in a step, by formula (Bian et al., 2105.14450). Imports no torch.

With N tokens of a data rank in a step, m micro-batches, g = (l−1)/l³, and per product a weight of in × out elements (q, k and v together,
and gate and up):

- inputs, along the column line of a product into a block, along the row line of one out of it: gathered forward and backward, and their
  gradients summed once, N·in·g each.
- outputs, along the other of the two: summed forward, and their gradients gathered, N·out·g each.
- weights, along the depth line: gathered forward and backward, and their gradients summed, m·in·out·g each.
- the head is a product into a block. Its input is gathered twice, its logits, N·vocab·g, summed once and their gradient gathered.
- the embedding: the tokens' numbers along the row line, 8 bytes each, N(l−1)/l²; its output along the column line as of a product; its
  table along the depth line once per micro-batch, and the sums of its gradient once.
- learned positions: their table along column line and depth, gathered and then its gradient's sums, once per micro-batch; with packed
  documents their numbers along the row line, 8 bytes each, N(l−1)/l².
- a norm: along the row line 1 number per token forward and 1 backward, in all-reduces of 2 · N(l−1)/l³; along the two others its gradient,
  once per micro-batch. LayerNorm has twice as many of each.
- biases: the gradients of the rank's own, once per micro-batch, in all-reduces along the depth and along the line of outputs.
- norms of heads: the same along all three lines, whole.
- with more than two replicas, once per step the first rank's reduced gradients of these parameters along the same lines, n(l−1)/l of the n
  that a rank has after ZeRO.
- the loss: along the column line 1 and then 2 numbers per token (3 with label smoothing).
- full recompute repeats what a block sends forward.
- a pipeline: as of a grid, see `grid_traffic.py`. Both halves of a backward pass gather the gradients of outputs.

Rows that l does not divide travel padded to equal chunks.
"""

from collections.abc import Iterator

from . import first_rank
from .estimate import Setting
from .grid_traffic import (
    Part,
    biases_into,
    biases_out_of,
    gradients_of_copies,
    gradients_of_norms,
    reduced_gradients,
    sums_of_norms,
    widest,
)
from .model_shape import share
from .whole_gradients import between_layers, into_a_block, is_vector


def along_depth(setting: Setting) -> Iterator[Part]:
    """What rank 0 sends to the ranks that differ in their depth: weights and their gradients."""
    of, side = setting.decoder, setting.layout.division.columns
    each = (side - 1) * setting.batch.microbatches
    blocks, again, head = first_rank.blocks(setting), first_rank.times_recomputed(setting), first_rank.has_head(setting)
    c = setting.compute
    products = [(of.query, of.dim), (of.key, of.dim), (of.key, of.dim), (of.dim, of.query), (of.dim, of.hidden)]
    products += [(of.hidden, of.dim)] * (1 + of.gated)
    weights = sum(_part(rows, columns, side) for rows, columns in products) * each
    table = _part(of.vocab, of.dim, side) * each
    yield Part("all_gather", "2in·out · g per layer", (2 * blocks + again) * weights + (2 * head + 1) * table, c)
    yield Part("reduce_scatter", "in·out · g per layer", blocks * weights + head * table, c)
    yield Part("reduce_scatter", "embedding", table, widest(setting))
    yield from _positions(setting, share(of.positions, side, 0))
    yield from _norms(setting)
    yield from gradients_of_copies(setting, biases_into(setting) + biases_out_of(setting))
    yield from reduced_gradients(setting, is_vector)


def along_row(setting: Setting) -> Iterator[Part]:
    """What rank 0 sends to the ranks that differ in their row: results of products into a block, inputs of those out of it."""
    of, side = setting.decoder, setting.layout.division.columns
    tokens = _own_tokens(setting)
    blocks, again, head = first_rank.blocks(setting), first_rank.times_recomputed(setting), first_rank.has_head(setting)
    c = setting.compute
    inputs, outputs = (of.query + of.hidden) / side * tokens, _inside(setting) / side * tokens
    scores = share(of.vocab, side, 0) * tokens
    twice, head_twice = first_rank.blocks_twice(setting), first_rank.head_twice(setting)
    gathered = (2 * blocks + again) * inputs + (blocks + twice) * outputs + (head + head_twice) * scores
    yield Part("all_gather", "2N·in · g and N·out · g per layer", gathered, c)
    yield Part("all_gather", "numbers of tokens", tokens * (2 if setting.packed and of.positions else 1), 8)
    summed = blocks * inputs + (blocks + again) * outputs + head * scores
    yield Part("reduce_scatter", "N·in · g and N·out · g per layer", summed, c)
    yield Part("all_reduce", "norms", sums_of_norms(setting) * 2 * tokens / side, widest(setting))
    yield from gradients_of_copies(setting, biases_into(setting))
    yield from reduced_gradients(setting, into_a_block)


def along_column(setting: Setting) -> Iterator[Part]:
    """What rank 0 sends to the ranks that differ in their column: inputs of products into a block, results of those out of it."""
    of, side = setting.decoder, setting.layout.division.columns
    tokens, own = _own_tokens(setting), share(setting.decoder.dim, side, 0)
    blocks, again, head = first_rank.blocks(setting), first_rank.times_recomputed(setting), first_rank.has_head(setting)
    c = setting.compute
    hidden = own * tokens  # two products into a block, and two out of it
    gathered = (2 * (2 * blocks + again) + 2 * (blocks + first_rank.blocks_twice(setting)) + 2 * head + 1) * hidden
    yield Part("all_gather", "2N·in · g and N·out · g per layer", gathered, c)
    summed = (2 * blocks + 2 * (blocks + again) + head + 1) * hidden
    yield Part("reduce_scatter", "N·in · g and N·out · g per layer", summed, c)
    yield Part("all_reduce", "loss", head * (3 + setting.smoothing) * 2 * tokens / side, widest(setting))
    yield from _positions(setting, share(share(of.positions, side, 0), side, 0))
    yield from _norms(setting)
    yield from gradients_of_copies(setting, biases_out_of(setting))
    yield from reduced_gradients(setting, between_layers)


def _positions(setting: Setting, rows: int) -> Iterator[Part]:
    """The table of learned positions, of which a rank's part along a line has `rows` rows, and the sums of its gradient."""
    of, side = setting.decoder, setting.layout.division.columns
    moved = rows * share(of.dim, side, 0) * (side - 1) * setting.batch.microbatches
    if moved:
        yield Part("all_gather", "positions", moved, setting.compute)
        yield Part("reduce_scatter", "positions", moved, setting.compute)


def _norms(setting: Setting) -> Iterator[Part]:
    """Gradients of the norms' own columns, which ranks of two lines hold."""
    side = setting.layout.division.columns
    own = share(setting.decoder.dim, side, 0) * (side - 1) / side * setting.batch.microbatches
    yield Part("all_reduce", "norms", gradients_of_norms(setting) * 2 * own, widest(setting))


def _own_tokens(setting: Setting) -> float:
    """N(l−1)/l²: the tokens of a rank, once for each other rank of a line."""
    division = setting.layout.division
    return setting.tokens * setting.batch.microbatches / division.rows * (division.columns - 1)


def _inside(setting: Setting) -> int:
    """The widths of the results of a block's products into it."""
    of = setting.decoder
    return of.query + 2 * of.key + (1 + of.gated) * of.hidden


def _part(rows: int, columns: int, side: int) -> int:
    """Elements of rank 0's part of a weight [rows, columns], the largest."""
    return share(share(rows, side, 0), side, 0) * share(columns, side, 0)
