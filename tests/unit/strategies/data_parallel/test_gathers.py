"""Which module waits for a parameter. What is gathered when: see test_zero.py."""

import torch

from shardyard.strategies.data_parallel import gathers


class Calling(torch.nn.Module):
    calls_blocks = True

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleDict({"0": torch.nn.ModuleDict({"key": torch.nn.Linear(2, 2)})})


class Taking(Calling):
    """Its blocks may have no call at all: a forward pass takes `blocks["0"]["key"]`."""

    calls_blocks = False


def test_blocks_wait_for_themselves_only_where_the_part_says_that_it_calls_them() -> None:
    """A hook before the call of a block that is never called let a step use the weights of the one before."""
    for part, waits in ((Calling(), True), (Taking(), False)):
        weight = part.blocks["0"]["key"].weight  # type: ignore[index]
        assert (gathers.uses([part])[weight] == 1) == waits
        assert len(gathers.callers([part])) == 1 + waits


def test_a_weight_of_two_parts_is_waited_for_by_the_first() -> None:
    """It was by the last one only, so that the embedding of a tied pipeline was read before its new values had arrived."""
    first, last = (torch.nn.ModuleDict({"own": torch.nn.Linear(2, 2), "tied": torch.nn.Linear(2, 2)}) for _ in range(2))
    last["tied"].weight = first["tied"].weight
    uses = gathers.uses([first, last])
    assert uses[first["tied"].weight] == uses[first["own"].weight] == 0
    assert uses[last["own"].weight] == uses[last["tied"].bias] == 1
