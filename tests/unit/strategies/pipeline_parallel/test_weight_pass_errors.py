"""Passes for weights alone, of stages that use a weight in several places; torch's own halves, on one autograd graph."""

import pytest
import torch
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from shardyard.strategies.layout import Refusal
from shardyard.strategies.pipeline_parallel.weight_pass_errors import check_graph, explained

#: Where a stage uses its shared weight.
BEFORE, INSIDE, AFTER = "before", "inside", "after"


class Stage(nn.Module):
    """A block, a norm and a head; `shared` has a weight that is used at `places`."""

    def __init__(self, places: tuple[str, ...]) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({"a": nn.Linear(4, 4)})
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 2)
        self.shared = nn.LayerNorm(4, bias=False)
        self._places = places

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.shared(x) if BEFORE in self._places else x
        x = self.blocks["a"](x)
        x = self.shared(x) if INSIDE in self._places else x
        x = self.shared(x) if AFTER in self._places else x
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def gradients(stage: nn.Module, halves: bool) -> dict[str, torch.Tensor]:
    given = torch.arange(8.0).reshape(2, 4).sin().requires_grad_()
    loss = stage(given).square().sum()
    if halves:
        _, groups = stage_backward_input([loss], None, [given], stage.parameters())
        with explained(stage, groups, "zb-h1"):
            stage_backward_weight(stage.parameters(), groups)
    else:
        loss.backward()
    return {name: value.grad for name, value in stage.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("places", [(), (BEFORE,), (AFTER,), (INSIDE, AFTER)], ids=str)
def test_a_weight_with_nothing_between_its_places_has_its_gradient(places: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    stage = Stage(places)
    expected = gradients(stage, halves=False)
    stage.zero_grad()
    found = gradients(stage, halves=True)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


def test_a_weight_with_others_between_its_places_is_refused_by_its_name() -> None:
    with pytest.raises(Refusal, match=r"zb-h1 splits .*: shared\.weight of Stage") as refused:
        gradients(Stage((BEFORE, AFTER)), halves=True)
    assert refused.value.field == "layout.schedule"


class Summed(nn.Module):
    """Two sums, each of a weight of a block and of a shared one: torch would add the shared one's gradient twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({name: nn.ParameterDict({"bias": torch.ones(4)}) for name in "ab"})
        self.shared = nn.ParameterDict({"bias": torch.ones(4)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks.values():
            x = x + (block["bias"] + self.shared["bias"])  # type: ignore[index]
        return x


def test_a_gradient_that_would_be_added_twice_is_refused() -> None:
    with pytest.raises(Refusal, match=r"shared\.bias of Summed"):
        gradients(Summed(), halves=True)


def test_other_errors_and_whole_passes_are_as_they_are() -> None:
    for groups in (None, [{"params": {object()}, "intermediates": {object()}}]):
        with pytest.raises(RuntimeError, match="a second time") as raised, explained(nn.Linear(1, 1), groups, "zb-h1"):
            raise RuntimeError("Trying to backward through the graph a second time")
        assert not isinstance(raised.value, Refusal)


def test_a_result_of_weights_alone_is_refused_by_the_name_of_one() -> None:
    stage, x = Stage(()), torch.ones(2, 4, requires_grad=True)
    check_graph(stage, (stage(x), x, torch.ones(2), stage.norm.weight.detach().tanh()), (x,), "zb-h1")
    check_graph(stage, (stage(x) + stage.head.weight.sum(),), (x,), "zb-h1")
    with pytest.raises(Refusal, match=r"zb-h1 splits .*: on norm\.weight of Stage") as refused:
        check_graph(stage, (stage(x), stage.norm.weight.tanh()), (x,), "zb-h1")
    assert refused.value.field == "layout.schedule"
