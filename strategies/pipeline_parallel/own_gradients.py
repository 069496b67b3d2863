"""Gradients in memory of their own, where a schedule computes those of weights later than those of inputs.

Torch's pass for weights stores the tensors that autograd returns, and adds the next micro-batch's to them in place. Two weights that are
added up get one tensor, and a weight that is added to a hidden state that of the state, which may be on its way to the stage before.
An einsum returns a permuted tensor, and a sum one element that stands for all. A whole backward pass copies these (`AccumulateGrad`),
except for views (`data_parallel/shared_gradients.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor


@contextmanager
def own_gradients(part: nn.Module, groups: Sequence[Mapping[str, Any]] | None) -> Iterator[None]:
    """Run the pass for weights of the stage `part` inside. `groups`: of weights, as torch's pass for inputs returned them."""
    first = [weight for weight in part.parameters() if weight.grad is None]
    used = [_storage(given) for group in groups or () for given in _given(group)]
    yield
    seen = {id(storage) for storage in used}  # which exist as long as they are in `used`
    for weight in first:
        if weight.grad is None:
            continue
        storage = _storage(weight.grad)
        # The optimizer's fused steps take gradients as they lie in memory, as they do weights, which are contiguous.
        if id(storage) in seen or not _own(weight.grad).is_contiguous():
            weight.grad = weight.grad.clone(memory_format=torch.contiguous_format)
        else:
            used.append(storage)
            seen.add(id(storage))


def _given(group: Mapping[str, Any]) -> Iterable[torch.Tensor]:
    """The gradients that the pass for inputs has kept for a group of weights."""
    return (grad for grads in group.get("grads") or () for grad in grads or () if grad is not None)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return _own(tensor).untyped_storage()


def _own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
