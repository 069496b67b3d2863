"""Which module waits for a parameter. What is gathered when: see test_zero.py."""

import torch

from shardyard.strategies.data_parallel import gathers


def test_a_weight_of_two_parts_is_waited_for_by_the_first() -> None:
    """It was by the last one only, so that the embedding of a tied pipeline was read before its new values had arrived."""
    first, last = (torch.nn.ModuleDict({"own": torch.nn.Linear(2, 2), "tied": torch.nn.Linear(2, 2)}) for _ in range(2))
    last["tied"].weight = first["tied"].weight
    uses = gathers.uses([first, last])
    assert uses[first["tied"].weight] == uses[first["own"].weight] == 0
    assert uses[last["own"].weight] == uses[last["tied"].bias] == 1
