"""A block's activations leave the device soon after its forward pass, and are back before its backward pass; no number changes."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from shardyard.strategies.activation_memory import host_pool, offload


def blocks(count: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(count)))


def gradients(model: nn.Module, passes: int = 1, twice: bool = False) -> list[torch.Tensor]:
    losses = [model(torch.full((3, 4), 1.0 + number)).sum() for number in range(passes)]
    for loss in losses:
        loss.backward(retain_graph=twice)
        if twice:
            loss.backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def both(**how: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    plain, moved = blocks(), blocks()
    offload.offload_activations(moved)
    return gradients(plain, **how), gradients(moved, **how)


def test_gradients_are_the_same_bits() -> None:
    for how in ({}, {"passes": 3}, {"twice": True}):
        expected, found = both(**how)
        assert len(found) == 12 and all(map(torch.equal, found, expected))


def test_the_device_has_those_of_two_blocks_and_fetches_one_ahead() -> None:
    model = blocks()
    kept: list[weakref.ref[Any]] = []
    given = offload._Offload.end

    class Noted(offload._Offload):
        def end(self, one: Any) -> None:
            given(self, one)
            kept.append(weakref.ref(one))
            assert self.leaving[-1] is one and len(self.leaving) <= 2

    shared = Noted()
    for number, block in enumerate(model):
        block.forward = offload.functools.partial(offload._forward, shared, number == 0, block, block.forward)
    loss = model(torch.ones(3, 4)).sum()

    def on_device() -> list[int]:
        found = enumerate(one() for one in kept)
        return [number for number, one in found if one is not None and any(t is not None for t in one.tensors)]

    assert on_device() == [4, 5]
    seen: list[list[int]] = []
    for block in model:  # at its weight's gradient a block has used all of its own
        block[0].weight.register_hook(lambda _: seen.append(on_device()))
    loss.backward()
    assert seen == [[4], [3], [2], [1], [0], []]
    del loss
    gc.collect()
    assert [one() for one in kept] == [None] * 6


@pytest.mark.parametrize("changed", [1, 5])
def test_a_kept_tensor_that_is_changed_in_place_is_an_error(changed: int) -> None:
    """As torch makes it one without offload. The first is found when it is freed, the last in the backward pass."""
    model = blocks()
    offload.offload_activations(model)
    found: list[torch.Tensor] = []
    for block in model:
        block[0].register_forward_hook(lambda _, __, result: found.append(result.detach()))
    value = torch.ones(3, 4)
    with pytest.raises(RuntimeError, match="changed in place"):
        for number, block in enumerate(model):
            value = block(value)
            if number == changed:
                found[number].add_(1)
        value.sum().backward()


class Shared(nn.Module):
    """Autograd saves its input for three layers, in one shape or another, and its transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.q(x) * self.k(x) + self.v(x.flatten(0, 1)).view_as(x)
        return y + x.transpose(0, 1).exp().transpose(0, 1)


def _moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each copy from here on."""
    copies: list[int] = []
    given = offload._copy

    def noted(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
        copies.extend(one.nbytes for one in sources)
        given(sources, targets)

    monkeypatch.setattr(offload, "_copy", noted)
    return copies


def _three_blocks() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Shared() for _ in range(3)))


def test_memory_that_is_saved_several_times_is_copied_once_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    model, plain, copies = _three_blocks(), _three_blocks(), _moved(monkeypatch)
    offload.offload_activations(model)
    x, saved = torch.rand(2, 3, 4, requires_grad=True), set()

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, nn.Parameter) and tensor.shape != (4, 4):
            saved.add((tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        expected = plain(x)
    loss = model(x)
    assert sum(copies) == sum(size for _, size in saved)
    down = sum(copies)
    loss.sum().backward()
    expected.sum().backward()
    assert sum(copies) == down + down // 3  # the last two blocks were still on the device
    for found, given in zip(model.parameters(), plain.parameters(), strict=True):
        assert found.grad is not None and given.grad is not None and torch.equal(found.grad, given.grad)


def test_a_version_and_a_freed_storage_are_other_memory() -> None:
    kept = offload._Offload().begin(True)
    x = torch.rand(2, 3)

    def number(tensor: torch.Tensor) -> int:
        packed = offload._pack(kept, set, tensor)
        assert packed.layout in (None, (tensor.shape, tensor.stride()))
        found: int = packed.number
        return found

    views = [x, x.view(6), x.t(), x[1:], x[1].unsqueeze(0), x[:, 1:], x[:, 1:].clone()]
    assert [number(view) for view in views] == [0, 0, 0, 1, 1, 2, 3]
    x.add_(1)
    assert number(x) == 4
    # Its memory is freed, and its address may be another storage's next.
    last = kept.tensors[number(torch.rand(5))]
    assert last is not None
    memory = offload._memory(last)
    last.untyped_storage().resize_(0)
    assert not kept._has(5, memory)


def test_views_of_memory_in_any_order_come_back_as_they_were() -> None:
    kept = offload._Offload().begin(True)
    x = torch.rand(2, 3, 4)
    views = [x, x.transpose(0, 2), x[1].t(), x[:, :2], x[:1].expand(5, 3, 4), x[:0], x.unsqueeze(1).transpose(1, 3)]
    packed = [offload._pack(kept, set, view) for view in views]
    kept.copy_down()
    kept.free()
    for view, one in zip(views, packed, strict=True):
        assert torch.equal(offload._unpack(one), view)


def test_the_device_has_shared_memory_until_its_last_user_has_it() -> None:
    model = _three_blocks()
    offload.offload_activations(model)
    kept: list[Any] = []
    given = offload._Kept.take

    def take(one: Any, number: int) -> torch.Tensor:
        found = given(one, number)
        kept.append((one.tensors[number] is None, one._users[number] == 0))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offload._Kept, "take", take)
        model(torch.rand(2, 3, 4)).sum().backward()
    assert all(dropped == last for dropped, last in kept)
    assert {dropped for dropped, _ in kept} == {False, True}


def test_without_gradients_nothing_is_kept() -> None:
    model = blocks()
    offload.offload_activations(model)
    with torch.no_grad():
        model(torch.ones(3, 4))
    assert model(torch.ones(3, 4)).requires_grad


def test_later_steps_use_the_host_memory_of_the_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Noted(offload.Piece):
        def __init__(self, size: int, device: torch.device) -> None:
            super().__init__(size, device)
            made.append(size)

    monkeypatch.setattr(host_pool, "Piece", Noted)
    model = blocks()
    offload.offload_activations(model)
    for _ in range(3):
        gradients(model)
        gc.collect()
    assert len(made) == 6


def test_what_a_second_backward_pass_has_kept_is_not_overwritten() -> None:
    """Later passes use the host memory again."""
    kept: list[torch.Tensor] = []

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            kept.append(ctx.saved_tensors[0].detach())
            return grad

    class Block(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Keeps.apply(x * 1)  # type: ignore[no-any-return,no-untyped-call]

    model = nn.Sequential(*(Block() for _ in range(4)))
    offload.offload_activations(model)
    for value in (1.0, 7.0):
        loss = model(torch.full((3, 4), value, requires_grad=True)).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        del loss
        gc.collect()
    assert [float(tensor.mean()) for tensor in kept] == [1.0] * 8 + [7.0] * 8
