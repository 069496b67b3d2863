"""Bytes per token that one block of a rank keeps, and those that its backward pass works with. Imports no torch.

A mixture's feed-forward sees `top_k` rows per token, counted as if each expert got as many as any other, and its shared experts see
every token once. Beside what its experts keep it keeps the router's input and logits in fp32, the rows in the experts' order, their
results twice but for one row per token (before and after they are weighted), where each row went, and with sequence parallelism its whole
input. With a capacity, experts over several ranks get buffers of fixed size, of as many rows as an expert could get, and the results leave
them once more (`expert_parallel.py`). Selective recompute computes products of all experts together again: batched ones, and those grouped
in bf16 (`expert_rules.py`). Products expert by expert it keeps.

Context parallelism: attention keeps the heads that a rank has after Ulysses' exchange, with the copies of key/value heads. An all-gather
works with the whole sequence's keys and values, and in the backward pass with their gradients in fp32 or wider. Ring Self-Attention
keeps the softmax of all scores, and works with two copies in fp32 or wider.

Packed documents: attention keeps what a fused kernel keeps, with key/value heads as they are, and each token's rotation of its own. It
works with four copies of a chunk of scores, and with queries, keys and values of all heads and their gradients, in fp32 or wider.
"""

from ..context_axes import key_copies
from ..flash_rules import FLASH_CAPABILITY, flash_takes
from ..layout import divides_hidden
from ..packed_rules import CHUNK
from .activations import Widths, kept
from .estimate import Setting

#: Bytes of a number in fp32, and of an index.
_WIDE, _INDEX = 4, 8


def block_bytes(setting: Setting, mode: str) -> float:
    """Bytes per token that a block keeps under recompute `none`, `selective` or `full`."""
    of, layout = setting.decoder, setting.layout
    repeated = _repeats_keys(setting)
    again = mode == "selective" and of.experts is not None and setting.experts_together
    hidden = of.hidden * ((0 if again else setting.expert_rows) + of.shared_experts)
    key = of.key * key_copies(layout, of.kv_heads)
    scores = setting.seq_len if _keeps_scores(setting) else None
    computed_again = setting.packed and not keeps_attention(setting)
    normed = of.query + of.key if of.head_norms else 0
    widths = Widths(of.dim, of.query, key, of.heads, hidden, of.gated, repeated, scores, computed_again, normed)
    found = kept(mode, widths)
    plain = setting.compute * found.of_rank(layout.tensor, divides_hidden(layout))
    if mode == "none":  # the number by which a norm divides each head
        plain += max(_WIDE, setting.compute) * normed * of.heads / of.query / layout.tensor
    if setting.packed and of.gated and mode == "none":  # sine and cosine
        plain += 2 * max(_WIDE, setting.compute) * of.query / of.heads
    if of.experts is None or mode == "full":
        return plain
    if again:  # of the mixture itself its logits, and results of shared experts and of the sum over tensor ranks
        return plain + _WIDE * of.experts + setting.compute * of.dim * (_whole_rows(setting) + (layout.tensor > 1))
    return plain + _routing_bytes(setting)


def _whole_rows(setting: Setting) -> float:
    """Rows per token that a mixture keeps whatever its routing: a result of shared experts, and its input where ranks had parts of it."""
    parts = setting.layout.tensor if divides_hidden(setting.layout) else 1
    return (setting.decoder.shared_experts > 0) + 1 - 1 / parts


def _routing_bytes(setting: Setting) -> float:
    of = setting.decoder
    rows = setting.expert_rows + 2 * of.top_k - 1 + setting.fixed_buffers * of.top_k + _whole_rows(setting)
    # With packed documents each token keeps its document's loads, too.
    wide = max(_WIDE, setting.compute) * (of.dim + (4 + setting.packed) * (of.experts or 0))
    return setting.compute * of.dim * rows + 3 * _INDEX * of.top_k + wide


def working_bytes(setting: Setting) -> float:
    """Bytes per token of gradients and copies while one block runs backward: at its feed-forward, or at its rotation in fp32.

    A feed-forward's product is dropped once its own gradient is there, so that takes its place. Then there are the gradients of what it is
    the product of, and with experts their rows in another order.

    On a grid hidden states are divided there, too, and two blocks of the feed-forward's input travel: that in use and the next. In a cube
    the gradients of its columns are gathered along a line, and so is its input; the gradient of the input is there before it is summed.
    """
    of, c, t = setting.decoder, setting.compute, setting.layout.tensor
    hidden = of.hidden * max(setting.expert_rows, of.shared_experts)  # one after the other
    shape = setting.layout.tensor_shape
    outside = 2 * c * of.dim / (1 if shape is None else t)
    if shape is not None and shape.mode == "3d":
        line = setting.layout.division.columns
        feed_forward = c * ((1 + of.gated) * hidden * (2 + line) + 2 * line * of.dim) / t + outside
    else:
        new = of.gated + 1 + (of.experts is not None)
        feed_forward = c * (new + 2 * (shape is not None)) * hidden / t + outside
    rotation = (4 * 3 * of.query / t if of.gated else 0) + outside
    return max(feed_forward, rotation, _gathered_bytes(setting), _scores_bytes(setting), _packed_bytes(setting))


def gathered_weights(setting: Setting) -> float:
    """Bytes of the weights that a rank of a cube gathers for one product: of the feed-forward's columns, joined, and their gradient."""
    shape, of = setting.layout.tensor_shape, setting.decoder
    if shape is None or shape.mode != "3d":
        return 0
    return setting.compute * 3 * (1 + of.gated) * of.hidden * of.dim / setting.layout.division.columns**2


def _repeats_keys(setting: Setting) -> bool:
    """Whether attention gets key and value heads repeated for each query head (`workers/models/attention.py`)."""
    size = setting.decoder.query // setting.decoder.heads
    flash = setting.device == "cpu" or flash_takes(size, setting.capability or FLASH_CAPABILITY)
    return not setting.packed and (setting.compute > 2 or not flash)


def keeps_attention(setting: Setting) -> bool:
    """Whether selective recompute keeps the result of an attention that is made of blocks, as one: of rings and all-gathers."""
    return setting.layout.ring > 1 and not _keeps_scores(setting)


def _keeps_scores(setting: Setting) -> bool:
    return setting.layout.context_method == "ring-self-attention" and setting.layout.ring > 1


def _scores_bytes(setting: Setting) -> float:
    """Bytes per token of the scores and their softmax while Ring Self-Attention computes them."""
    if not _keeps_scores(setting):
        return 0
    return 2 * max(_WIDE, setting.compute) * setting.decoder.heads * setting.seq_len / setting.layout.tensor


def _packed_bytes(setting: Setting) -> float:
    """Bytes per token while attention within documents is computed backward; an all-gather has the keys of the whole sequence."""
    if not setting.packed:
        return 0
    of, layout, wide = setting.decoder, setting.layout, max(_WIDE, setting.compute)
    whole = layout.ring if layout.context_method == "all-gather" else 1
    scores = of.heads / layout.tensor * setting.tokens * setting.seq_len  # of all heads, at most
    return wide * (4 * min(CHUNK, scores) / setting.tokens + (2 + 4 * whole) * of.query / layout.tensor)


def _gathered_bytes(setting: Setting) -> float:
    """Bytes per token of keys, values and their gradients, for the tokens of all ranks that gather. The gradients exist twice while
    they are sorted by rank.
    """
    layout, of = setting.layout, setting.decoder
    if layout.context_method != "all-gather" or layout.ring == 1:
        return 0
    keys = 2 * of.key * key_copies(layout, of.kv_heads) / layout.tensor
    return layout.ring * keys * (setting.compute + 2 * max(_WIDE, setting.compute))
