"""A copy without a graph shares the version counter of what it was made from, below autograd."""

from typing import Any

import torch
from torch import Tensor

from shardyard.strategies.activation_memory.version_counter import version, without_graph
from shardyard.strategies.dispatch_mode import DispatchMode, operator_name


class _Copies(DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.copies: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.names.append(operator_name(func))
        self.copies.append(without_graph(result))
        return result


def test_a_change_in_place_raises_the_counter_of_the_copy() -> None:
    weight = torch.ones(3, 3, requires_grad=True)
    with _Copies() as copies:
        product = torch.mm(weight, weight)
    assert copies.names == ["aten::mm"]
    (copy,) = copies.copies
    before = version(copy)
    product.add_(1)
    assert version(copy) == before + 1
    assert not copy.requires_grad and copy.data_ptr() == product.data_ptr()
