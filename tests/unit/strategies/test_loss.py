"""The loss with the vocabulary cut equals the whole one, value and gradients, and never makes whole logits."""

from functools import partial
from typing import Any

import pytest
import torch
from harness.ranks import group, spawn

from shardyard.strategies.documents import IGNORED
from shardyard.strategies.loss import TokenLoss, sum_whole
from shardyard.strategies.precision import LossScale

TERMS = [(0.0, 0.0), (0.1, 0.0), (0.0, 1e-3), (0.3, 0.5)]


def _logits(vocab: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, vocab, generator=generator, dtype=torch.float64) * 8
    return logits.to(dtype), torch.randint(0, vocab, (3, 5), generator=generator)


def _note(widest: list[int], saved: torch.Tensor) -> torch.Tensor:
    """The width of every matrix that is kept for the backward pass."""
    widest.append(saved.shape[-1] if saved.dim() > 1 else 1)
    return saved


def _difference(
    rank: int, world: int, port: int, vocab: int, dtype: torch.dtype, ignored: bool = False
) -> list[tuple[float, float, int]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    group(rank, world, port)
    mesh = init_device_mesh("cpu", (world,))
    found = []
    for smoothing, z_loss in TERMS:
        whole, targets = _logits(vocab, dtype)
        if ignored:
            targets[0, 2] = targets[2, 4] = IGNORED
        whole.requires_grad_()
        cut: Any = distribute_tensor(whole.detach(), mesh, [Shard(2)]).requires_grad_()
        widest: list[int] = []
        loss = TokenLoss(15, LossScale(scale=4.0), smoothing, z_loss)
        expected = loss(whole, targets)
        with torch.autograd.graph.saved_tensors_hooks(partial(_note, widest), lambda saved: saved):
            value = loss(cut, targets)
        expected.backward()
        value.backward()
        assert isinstance(cut.grad, DTensor) and whole.grad is not None
        gradient = (cut.grad.full_tensor() - whole.grad).abs().max().item()
        found.append(((value - expected).abs().item(), gradient, max(widest)))
    return found


@pytest.mark.parametrize(("world", "vocab"), [(2, 16), (2, 17), (4, 64), (4, 9)])
def test_equals_the_whole_loss_in_float64(world: int, vocab: int) -> None:
    for found in spawn(_difference, world, vocab, torch.float64):
        for value, gradient, widest in found:
            assert value < 1e-12
            assert gradient < 1e-12
            assert widest <= -(-vocab // world)


def test_ignored_targets_are_ignored_with_the_vocabulary_cut() -> None:
    for found in spawn(_difference, 2, 17, torch.float64, True):
        assert all(value < 1e-12 and gradient < 1e-12 for value, gradient, _ in found)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_follows_the_whole_loss_in_low_precision(dtype: torch.dtype, bound: float) -> None:
    for found in spawn(_difference, 2, 16, dtype):
        assert all(value < 1e-4 and gradient < bound for value, gradient, _ in found)


def test_terms_are_those_of_the_papers() -> None:
    logits, targets = _logits(11, torch.float64)
    log_z = logits.logsumexp(-1)
    own = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    expected = 0.9 * (log_z - own) + 0.1 * (log_z - logits.mean(-1)) + 1e-2 * log_z.square()
    torch.testing.assert_close(sum_whole(logits, targets, 0.1, 1e-2), expected.sum(), rtol=1e-13, atol=0)


def test_validation_measures_cross_entropy_alone() -> None:
    logits, targets = _logits(11, torch.float64)
    with torch.no_grad():
        assert TokenLoss(1, None, 0.1, 1e-2)(logits, targets) == sum_whole(logits, targets, 0.0, 0.0)


def test_an_ignored_target_adds_nothing_and_has_no_gradient() -> None:
    logits, targets = _logits(11, torch.float64)
    expected = sum_whole(logits[:, :3], targets[:, :3], 0.1, 1e-2)
    logits.requires_grad_()
    targets[:, 3:] = IGNORED
    found = sum_whole(logits, targets, 0.1, 1e-2)
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)
    assert logits.grad is not None and logits.grad[:, 3:].count_nonzero() == 0
    assert (logits.grad[:, :3] != 0).all()
