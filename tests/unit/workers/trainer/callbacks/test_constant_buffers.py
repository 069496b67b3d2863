"""A persistent buffer of the user's own module that training changes is refused, and no other one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from shardyard.strategies.layout import Refusal
from shardyard.workers.trainer.callbacks.constant_buffers import ConstantBuffers


class Codebook(nn.Module):
    """A buffer `codes` inside, which is changed by hand, and a constant one of complex numbers."""

    def __init__(self, persistent: bool = True) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.register_buffer("codes", torch.arange(6.0).view(2, 3), persistent=persistent)
        self.register_buffer("rotations", torch.polar(torch.ones(4), torch.arange(4.0)))
        self.weight = nn.Parameter(torch.ones(3))


def trained(module: nn.Module, change: Callable[[Any, int], None], architecture: Any = None) -> None:
    """Four steps, of which each ends with `change(module, step)`."""
    mesh = SimpleNamespace(size=lambda axis: 1)
    parts: Any = SimpleNamespace(architecture=architecture, parallel=SimpleNamespace(parts=[module]), mesh=mesh)
    watched = ConstantBuffers(parts)
    for step in range(1, 5):
        with torch.no_grad():
            change(module, step)
        record: Any = SimpleNamespace(step=step)
        watched.after_step(record)


def write(module: Any, step: int) -> None:
    module.inner.codes[0, 1] += 1


def replace(module: Any, step: int) -> None:
    module.inner.codes = module.inner.codes + 1


def grow(module: Any, step: int) -> None:
    module.inner.codes = torch.zeros(step, 3)


def write_late(module: Any, step: int) -> None:
    if step == 4:
        module.inner.codes.zero_()


def write_unseen(module: Any, step: int) -> None:
    module.inner.codes.data.mul_(1.5)


def normalise(module: Any, step: int) -> None:
    codes = module.inner.codes[0]
    nn.functional.batch_norm(torch.arange(12.0).view(4, 3), codes, torch.ones(3), training=True)


@pytest.mark.parametrize(
    ("change", "step"),
    [(write, 2), (replace, 2), (grow, 2), (write_late, 4), (write_unseen, 2), (normalise, 2)],
)
def test_a_buffer_that_changes_is_refused_with_its_name(change: Callable[[Any, int], None], step: int) -> None:
    with pytest.raises(Refusal, match=f"the buffer inner.codes has changed in step {step}") as refusal:
        trained(Codebook(), change)
    assert refusal.value.field == "model.import" and "persistent=False" in refusal.value.remedy


def keep(module: Any, step: int) -> None:
    module.weight += 1


def write_the_same(module: Any, step: int) -> None:
    module.inner.codes.copy_(torch.arange(6.0).view(2, 3))
    module.rotations = module.rotations.clone()


def set_once(module: Any, step: int) -> None:
    if step == 1:
        module.inner.codes = torch.ones(7, dtype=torch.bool)


@pytest.mark.parametrize("change", [keep, write_the_same, set_once])
def test_a_constant_buffer_may_be_written_again_or_set_by_the_first_step(change: Callable[[Any, int], None]) -> None:
    trained(Codebook(), change)


class Views(nn.Module):
    """Constant buffers that are no piece of memory of their own, and a `state_dict` of the user's."""

    def __init__(self) -> None:
        super().__init__()
        views = (torch.ones(16)[::2], torch.tensor(2.0).expand(8), torch.ones(4, dtype=torch.complex64).conj())
        for number, view in enumerate(views):
            self.register_buffer(f"view{number}", view)

    def state_dict(self) -> Any:  # type: ignore[override]
        return {"model": super().state_dict()}


def test_views_are_read_too_whatever_state_dict_the_module_has() -> None:
    trained(Views(), lambda module, step: None)
    with pytest.raises(Refusal, match="the buffer view0 has changed in step 2"):
        trained(Views(), lambda module, step: module.view0.add_(1))


def test_one_that_needs_no_checkpoint_may_change() -> None:
    trained(Codebook(persistent=False), write)


def test_models_of_ours_are_not_looked_at() -> None:
    trained(Codebook(), write, architecture="llama")
