"""A mixture of experts within packed documents: its capacity, its auxiliary losses and its loads are those of each document alone.

The last token of a document predicts nothing. No expert gets it, and no loss and no load counts it: a document is routed like a sequence
of the tokens that have a target. Its results go nowhere, as no other token of the document comes after it.

What a document's losses and capacity depend on is counted over all its tokens, which context ranks share. They send one number for each
expert and position of the whole sequence, and with a capacity their tokens' choices.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...strategies.documents import predicts


class Documents(NamedTuple):
    """The documents of this rank's tokens [batch, seq], in sequences of `length` tokens.

    `first` (int64): the place in the whole sequence at which a token's document starts; `counting` (bool): whether it has a target.
    """

    first: Tensor
    counting: Tensor
    length: int


def documents_of(starts: Tensor, places: Tensor) -> Documents:
    """Those of the tokens at `places` [seq]; `starts` [batch, whole sequence + 1] as in `strategies.documents.Packed`."""
    return Documents(starts[:, places], predicts(starts, places), starts.shape[1] - 1)


def balance_loss_within(
    logits: Tensor, chosen: Tensor, documents: Documents, over_sequence: Callable[[Tensor], Tensor]
) -> Tensor:
    """The load-balancing loss (`moe.balance_loss`) of each document, summed over the tokens that have a target.

    `logits` [batch, seq, experts], `chosen` [batch, seq, k]. `over_sequence` adds up counts [batch, whole sequence, experts] over the ranks
    that share the sequences; the sum of their results is the loss. Memory: twice the logits.
    """
    batch, _, experts = logits.shape
    has_target = documents.counting.unsqueeze(-1)
    picks = torch.zeros_like(logits).scatter_(2, chosen, has_target.to(logits.dtype).expand_as(chosen))
    place = documents.first.unsqueeze(-1).expand_as(logits)
    counts = over_sequence(logits.new_zeros(batch, documents.length, experts).scatter_add_(1, place, picks))
    of_document = counts.gather(1, place)
    frequency = of_document / of_document.sum(-1, keepdim=True).clamp(min=1)
    # Σ over a document's n tokens of experts · Σ f · P, in which the mean P has 1/n.
    return experts * (frequency * logits.softmax(-1)).masked_fill(~has_target, 0.0).sum()


def z_loss_within(logits: Tensor, documents: Documents) -> Tensor:
    """The router z-loss (`moe.z_loss`) of `logits` [batch, seq, experts], summed over the tokens that have a target."""
    return logits.logsumexp(-1).square().masked_fill(~documents.counting, 0.0).sum()


def kept_within(chosen: Tensor, starts: Tensor, experts: int, factor: float) -> Tensor:
    """Which of the choices [batch, whole sequence, k] are kept: of tokens with a target, as many as an expert takes of their document.

    An expert takes an equal share of the document's tokens with a target, times `factor`. First choices come before second ones, then
    earlier positions before later ones (`moe.within_capacity`). `starts` [batch, whole sequence + 1].
    """
    documents = documents_of(starts, torch.arange(chosen.shape[1], device=chosen.device))
    has_target = documents.counting.unsqueeze(-1).expand_as(chosen)
    # [batch, sequence, choice, expert]; sums over a document are taken at its first place.
    one = has_target.to(torch.int64).unsqueeze(-1)
    picks = one.new_zeros(*chosen.shape, experts).scatter_(3, chosen.unsqueeze(-1), one)
    place = documents.first.view(*chosen.shape[:2], 1, 1).expand_as(picks)
    before = picks.cumsum(1) - picks
    of_document = torch.zeros_like(picks).scatter_add_(1, place, picks).gather(1, place)
    ahead = before - before.gather(1, place) + of_document.cumsum(2) - of_document
    tokens = of_document[:, :, 0].sum(-1)
    capacity = _capacity(tokens, chosen.shape[2], experts, factor)
    return has_target & (ahead.gather(3, chosen.unsqueeze(-1)).squeeze(-1) < capacity.unsqueeze(-1))


def _capacity(tokens: Tensor, top_k: int, experts: int, factor: float) -> Tensor:
    """`moe.capacity_of` for each of these numbers of tokens."""
    share = factor * tokens.double() * top_k
    # By a tensor: CUDA multiplies by the reciprocal of a plain number, and would round a whole share up.
    return (share / torch.full_like(share, experts)).ceil()
