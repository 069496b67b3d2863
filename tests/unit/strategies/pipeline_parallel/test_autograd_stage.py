"""A stage's graph lives until its backward pass, under its number, and gives the gradients that autograd gives for the whole."""

import torch
from torch import nn

from shardyard.strategies.pipeline_parallel.autograd_stage import AutogradStage


def test_two_stages_give_the_gradients_of_the_whole_model() -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(3, 4).double(), nn.Linear(4, 2).double()
    stages = AutogradStage(first, 0), AutogradStage(last, 1)
    batches = [torch.randn(5, 3, dtype=torch.float64) for _ in range(3)]
    for number, given in enumerate(batches):  # all forward passes, and renumbered as between two steps
        hidden = stages[0].forward_one_chunk(number + 7, given.clone())
        output = stages[1].forward_one_chunk(number + 7, hidden.detach())
        stages[1].close(number + 7, output.square().sum())
    for stage in stages:
        stage.renumber(7)
    for number in (2, 0, 1):
        stages[0].backward_one_chunk(number, stages[1].backward_one_chunk(number, None))
    found = [p.grad for p in (*first.parameters(), *last.parameters())]
    loss = sum(last(first(given)).square().sum() for given in batches)
    expected = torch.autograd.grad(loss, [*first.parameters(), *last.parameters()])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_what_is_forgotten_has_no_backward_pass() -> None:
    stage = AutogradStage(nn.Embedding(4, 2), 0)
    stage.forward_one_chunk(0, torch.tensor([1]))
    stage.forget()
    try:
        stage.backward_one_chunk(0, torch.zeros(1, 2))
    except KeyError:
        return
    raise AssertionError("a graph was left")
