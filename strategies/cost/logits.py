"""Bytes per token that the loss holds of the logits at its peak (`strategies/loss.py`), and until its backward pass. Imports no torch.

Per token and own column, with c bytes of an element in the compute dtype and w of the loss's (4, or 8 in fp64):

- whole logits: the softmax that the forward pass keeps, its gradient, and that of the logits before it is rounded, 3w. (The forward
  pass holds less: c + 2w.) The z-loss keeps the logits in w too, and computes exp(x − log Z): 2w more.
- sharded logits: the softmax, the gradient and its product with the given one, 3w; then the result in c, unless c = w.
- in a cube of ranks: at most that, or before and after the loss the products of which they are summed, l times as many as own columns,
  with the softmax and the logits.
- in chunks (`strategies/chunked_loss.py`): the same of one chunk's tokens. The gradient of the head's weight is summed in w and kept in
  c, in the same memory if c = w. A pipeline's last stage returns hidden states instead of logits.
"""

from .estimate import Setting
from .model_shape import share

#: Bytes of a number in fp32, which the loss computes in, or wider.
_WIDE = 4


def loss_peak(setting: Setting, tensor_rank: int = 0) -> float:
    """Bytes per token at the peak of one micro-batch's loss on a tensor rank."""
    wide, own, cut = _wide(setting), _columns(setting, tensor_rank), setting.layout.tensor > 1
    rounded = setting.compute if setting.compute != wide else 0
    more = 2 * wide if setting.z_loss and not cut else 0
    each = own * (3 * wide + (rounded if cut else 0) + more)
    shape = setting.layout.tensor_shape
    if shape is not None and shape.mode == "3d":
        each = max(each, own * (setting.compute * (1 + setting.layout.division.columns) + wide))
    if setting.loss_chunk is None:
        return each
    weight = (wide + rounded) * own * setting.decoder.dim
    return (each * setting.loss_chunk + weight) / setting.tokens


def loss_kept(setting: Setting, tensor_rank: int = 0) -> float:
    """Bytes per token that one micro-batch's loss keeps for its backward pass on a tensor rank."""
    if setting.loss_chunk is not None:
        return setting.compute * _columns(setting, tensor_rank) * setting.decoder.dim / setting.tokens
    # The z-loss needs log Z of the logits, not of their softmax.
    several = setting.z_loss and setting.layout.tensor == 1
    return (2 if several else 1) * _wide(setting) * _columns(setting, tensor_rank)


def of_lookup(setting: Setting) -> float:
    """Bytes per number of the embedding's table that its backward pass holds at its end.

    Over a grid the sum that other ranks get and the own one are in the loss's dtype, then the own one in c; in a cube of l³ ranks a
    column's sum, which is l times as large.
    """
    shape, wide = setting.layout.tensor_shape, _wide(setting)
    if shape is None:
        return setting.compute
    rounded = setting.compute if setting.compute != wide else 0
    return wide * (1 + (setting.layout.division.columns if shape.mode == "3d" else 1)) + rounded


def output(setting: Setting, tensor_rank: int = 0) -> float:
    """Bytes per token of what the model returns: the logits, or hidden states if the loss is computed in chunks."""
    if setting.loss_chunk is not None:
        return setting.compute * setting.decoder.dim
    return setting.compute * _columns(setting, tensor_rank)


def _wide(setting: Setting) -> int:
    return max(_WIDE, setting.compute)


def _columns(setting: Setting, tensor_rank: int) -> float:
    """Own columns per token of a micro-batch; on a grid a rank has those of its row's tokens alone."""
    division = setting.layout.division
    if setting.layout.tensor_shape is not None:
        own = share(setting.decoder.vocab, division.columns, tensor_rank % division.columns)
        return own / division.rows
    return share(setting.decoder.vocab, setting.layout.tensor, tensor_rank)
