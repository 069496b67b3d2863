"""A stage with fields is called with them first, returns what can be sent, and sums the gradients of what it passes through."""

from typing import Any

import pytest
import torch
from torch import nn

from shardyard.strategies.fields import Fields, stage_inputs
from shardyard.strategies.pipeline_parallel.own_stages import take_fields


class Returns(nn.Module):
    """Returns what `what` makes of its arguments."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what = what

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.what(*given, **named)


def stage(what: Any, last: bool = False) -> nn.Module:
    found = Returns(what)
    take_fields(found, last)
    return found


def test_fields_come_before_what_was_passed() -> None:
    given = stage(lambda fields, x: (x, fields["bias"]))
    x, bias = torch.ones(2), torch.zeros(3)
    assert given(x, fields={"bias": bias}) == (x, bias)
    assert stage(lambda x, starts: x + starts)(x, starts=x).tolist() == [2.0, 2.0]


def test_what_is_passed_on_is_contiguous() -> None:
    turned = torch.arange(6.0).view(2, 3).T
    found, same = stage(lambda fields: (fields["x"], fields["y"]))(fields={"x": turned, "y": torch.ones(2)})
    assert found.is_contiguous() and torch.equal(found, turned)
    assert stage(lambda fields: fields["x"])(fields={"x": turned}).is_contiguous()
    assert same.is_contiguous()


@pytest.mark.parametrize("wrong", [None, {"x": 1}, (torch.ones(1), 3)], ids=["nothing", "a dict", "a number"])
def test_a_stage_that_returns_no_tensors_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"Returns returned \w+ from a stage that is not the last one"):
        stage(lambda fields: wrong)(fields={})
    assert stage(lambda fields: wrong, last=True)(fields={}) is wrong, "the loss names what is wrong with it"


def test_stages_take_a_batch_of_fields_by_name_and_tokens_by_position() -> None:
    fields = Fields(x=torch.arange(4))
    tensors, named = stage_inputs(fields)
    assert tensors == () and named["fields"]["x"] is fields["x"]
    assert type(named["fields"]) is dict, "torch's schedules cut no subclass of a dict"
    tokens = torch.arange(4)
    assert stage_inputs(tokens) == ((tokens,), {})


def test_a_gradient_of_what_goes_through_is_the_sum_of_its_uses() -> None:
    """As torch's stages run a backward pass: from all outputs, one of which is an input."""
    part = stage(lambda fields, x, encoded: (x * encoded, encoded))
    x, encoded = (torch.full((2,), value, requires_grad=True) for value in (3.0, 5.0))
    outputs = part(x, encoded, fields={})
    torch.autograd.backward(outputs, [torch.ones(2), torch.full((2,), 10.0)])
    assert x.grad is not None and encoded.grad is not None
    assert x.grad.tolist() == [5.0, 5.0] and encoded.grad.tolist() == [13.0, 13.0]
