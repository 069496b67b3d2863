"""Makes of a fake parameter the chunk that is asked for. `fully_shard` cuts it into one for every rank, and keeps one or two."""

from typing import Any

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param

from ...strategies.torch_version import require


class Chunks:
    """As a list of `torch.chunk`'s results, which are views, and empty tensors up to `number`."""

    def __init__(self, tensor: torch.Tensor, number: int, dim: int) -> None:
        self._tensor, self._number, self._dim = tensor, number, dim

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, place: int) -> torch.Tensor:
        if place >= self._number:
            raise IndexError(place)
        whole = self._tensor.size(self._dim)
        each = -(-whole // self._number)
        first = place * each
        if place and first >= whole:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, first, min(each, whole - first))


def install() -> None:
    """Let this process's `fully_shard` cut so."""
    require("fully_shard's chunks")
    module: Any = _fsdp_param
    assert callable(module._chunk_with_empty)
    module._chunk_with_empty = Chunks
