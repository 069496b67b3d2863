"""How a pipeline calls the stages of a module of the user's own that takes fields: as `forward(fields, *passed)`.

`passed` is what the stage before has returned, a tensor or a tuple of tensors; the first stage gets nothing beside the fields. Every rank
reads the rows, so that each stage has all fields, such as the tokens with which a decoder begins. What a stage passes on is sent, and its
gradient comes back. A tensor that goes through a stage, such as an encoder's output on its way to later blocks, is returned by it again:
its gradient is the sum of those of its uses in this stage and in the later ones.
"""

from typing import Any

import torch
from torch import nn


def take_fields(part: nn.Module, last: bool) -> None:
    """Let `part` be called with what was passed by position and with `fields` by name, as torch's stages do."""
    part.register_forward_pre_hook(_fields_first, with_kwargs=True)
    if not last:
        part.register_forward_hook(_sendable)


def _fields_first(
    _: nn.Module, passed: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `forward`. Those of a module of tokens are unchanged."""
    if "fields" not in named:
        return passed, named
    return (named["fields"], *passed), {name: value for name, value in named.items() if name != "fields"}


def _sendable(part: nn.Module, _: Any, output: Any) -> Any:
    """`output`, contiguous. Raises TypeError for what is not tensors."""
    tensors = output if isinstance(output, tuple) else (output,)
    for one in tensors:
        if not isinstance(one, torch.Tensor):
            raise TypeError(
                f"{type(part).__name__} returned {type(one).__name__} from a stage that is not the last one; without `head` it must "
                "return what the next stage takes: a tensor, or a tuple of tensors"
            )
    sent = tuple(one.contiguous() for one in tensors)
    return sent if isinstance(output, tuple) else sent[0]
