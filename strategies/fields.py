"""A batch of a user's own data source: named tensors, all with one row per sample. It is split, moved and pinned like one tensor."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .documents import Packed, taken


class Fields(dict[str, Tensor]):
    """Name → tensor [rows, …]. The module receives it as the dict that it is."""

    def chunk(self, chunks: int) -> list["Fields"]:
        """The rows in equal parts: the micro-batches. `rows` must be a multiple of `chunks`."""
        parts = {name: tensor.chunk(chunks) for name, tensor in self.items()}
        return [Fields({name: part[number] for name, part in parts.items()}) for number in range(chunks)]

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Fields":
        """Every tensor on `device`."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Fields":
        """Every tensor in pinned memory."""
        return self._each(lambda tensor: tensor.pin_memory())

    def floats_as(self, dtype: torch.dtype) -> "Fields":
        """Tensors of floating-point numbers in `dtype`; others unchanged."""
        return self._each(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Fields":
        return Fields({name: change(tensor) for name, tensor in self.items()})


#: What a model's first module receives: token ids [rows, sequence], alone or with the documents packed in them, or the fields of a
#: user's own data source.
Inputs = Tensor | Packed | Fields


def stage_inputs(inputs: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """What a pipeline's first stage takes by position, and what every stage takes by name: it reads the rows too.

    A stage of a module with fields takes them all by the name `fields` (`pipeline_parallel/own_stages.py`).
    """
    if isinstance(inputs, Fields):
        return (), {"fields": dict(inputs)}
    tokens, more = taken(inputs)
    return (tokens,), more
