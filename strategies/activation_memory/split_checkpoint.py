"""Recompute of blocks whose backward passes a pipeline's schedule runs in two halves.

Torch's `checkpoint` computes a block again for each autograd call that needs it. The second half is one call for each weight, and what a
call does not use stays until the graph is freed. Here the dropped tensors of a block come back at the first use. They stay until another
block of the same model part needs its own, or autograd frees them one by one. So each half computes a block again once, but for the
one at which the first half ends, if the second half follows at once. A rank holds what one block per part has dropped.

A block's inputs and random state are those of its forward pass, and tensors are matched by the order in which autograd saves them.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, noop_context_fn, set_device_states

#: Returns the mode of a block's forward pass, and that of each time when it is computed again.
Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]


class SplitCheckpoint:
    """Runs the blocks of one model part."""

    def __init__(self, contexts: Contexts = noop_context_fn) -> None:
        self._contexts = contexts
        self._latest: weakref.ref[_Call] | None = None

    def run(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`forward(*args, **kwargs)`, of which autograd keeps only the tensors among the arguments."""
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        first, again = self._contexts()
        call = _Call(forward, args, kwargs, again)
        with torch.autograd.graph.saved_tensors_hooks(call.drop, self._use), first:
            return forward(*args, **kwargs)

    def _use(self, dropped: "_Dropped") -> Tensor:
        """Raises `RuntimeError` if the block saves fewer tensors than in its forward pass."""
        if dropped.tensor is None:
            before = None if self._latest is None else self._latest()
            if before is not None:
                before.forget()
            dropped.call.compute()
            self._latest = weakref.ref(dropped.call)
        if dropped.tensor is None:
            raise RuntimeError("a block saved fewer tensors when it was computed again than in its forward pass")
        return dropped.tensor


class _Dropped:
    """What autograd holds in the place of a tensor, and the tensor where it has been computed again."""

    __slots__ = ("__weakref__", "call", "tensor")

    def __init__(self, call: "_Call") -> None:
        self.call: Final = call
        self.tensor: Tensor | None = None


class _Call:
    """One forward pass of a block. It lives as long as autograd holds something of it."""

    def __init__(
        self,
        forward: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        again: AbstractContextManager[Any],
    ) -> None:
        self._forward, self._arguments, self._again = forward, _Arguments(args, kwargs), again
        self._random, self._devices = torch.get_rng_state(), _device_states([*args, *kwargs.values()])
        self._dropped: list[weakref.ref[_Dropped]] = []

    def drop(self, _: Tensor) -> _Dropped:
        """The hook that packs a tensor in the forward pass."""
        dropped = _Dropped(self)
        self._dropped.append(weakref.ref(dropped))
        return dropped

    def forget(self) -> None:
        """Drop the tensors again."""
        for one in self._dropped:
            dropped = one()
            if dropped is not None:
                dropped.tensor = None

    def compute(self) -> None:
        """Compute the tensors that autograd still holds. Ends with the last one that the forward pass has saved."""
        waiting = list(reversed(self._dropped))

        def keep(tensor: Tensor) -> None:
            dropped = waiting.pop()()
            if dropped is not None:
                dropped.tensor = tensor.detach()
            if not waiting:
                raise _Enough

        devices, states = self._devices
        hooks = torch.autograd.graph.saved_tensors_hooks(keep, _never)
        args, kwargs = self._arguments.detached()
        try:
            with torch.random.fork_rng(devices), torch.enable_grad(), hooks, self._again:
                torch.set_rng_state(self._random)
                if devices:
                    set_device_states(devices, states)
                self._forward(*args, **kwargs)
        except _Enough:
            pass


def _device_states(values: Sequence[Any]) -> tuple[list[int], list[Tensor]]:
    """The random states of the devices that hold `values`. A dry run's device is never initialised, and has none."""
    kinds = {value.device.type for value in values if isinstance(value, Tensor)} - {"cpu", "meta"}
    if not all(getattr(torch.get_device_module(kind), "_initialized", False) for kind in kinds):
        return [], []
    return get_device_states(*values)


class _Enough(Exception):
    """All dropped tensors are there."""


def _never(_: None) -> Tensor:
    """The graph of a second forward pass is dropped."""
    raise AssertionError("the graph of a recomputation has no backward pass")


class _Arguments:
    """Those of a call. Autograd saves their tensors, so that hooks around the block see them, and may move them."""

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        given = [*args, *kwargs.values()]
        tensors = {place: value for place, value in enumerate(given) if isinstance(value, Tensor)}
        self._count, self._names = len(args), tuple(kwargs)
        self._others = [None if place in tensors else value for place, value in enumerate(given)]
        self._trained = {place: value.requires_grad for place, value in tensors.items()}
        anchor = torch.empty(0, requires_grad=True)
        output = _Saved.apply(anchor, *(value.detach() for value in tensors.values()))  # type: ignore[no-untyped-call]
        self._saved: Any = output.grad_fn

    def detached(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments without the graph of what came before."""
        values = list(self._others)
        for (place, trained), tensor in zip(self._trained.items(), self._saved.saved_tensors, strict=True):
            values[place] = tensor.detach().requires_grad_(trained)
        return values[: self._count], dict(zip(self._names, values[self._count :], strict=True))


class _Saved(torch.autograd.Function):
    """Saves tensors, and does nothing else."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return anchor.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # noqa: ARG004
        raise AssertionError("nothing is computed from the output")
