"""Gradient norm and clipping over every mesh axis: each slice of each parameter counts exactly once (Pascanu et al., 1211.5063)."""

from collections.abc import Callable, Sequence
from typing import Final

import torch
import torch.distributed as dist

from .logged_means import put
from .mesh import Mesh
from .param_shard import ParamShard
from .telemetry.current import now, wait_on
from .telemetry.logged_values import Number
from .torch_version import tried

#: Added to the norm before dividing by it, as torch's `clip_grad_norm_` does.
_EPSILON: Final = 1e-6


def sum_over_ranks(
    shards: Sequence[ParamShard], loss: torch.Tensor, counts_loss: bool, mesh: Mesh, *more: Number
) -> tuple[float, ...]:
    """The global loss, the squared gradient norm, and the sums of `more`, in one all-reduce of 2 + len(`more`) numbers over the world.

    `loss` is this rank's share of the loss; it counts if `counts_loss` is set (one tensor rank of the last pipeline stage).
    """
    numbers = _summands(shards, loss if counts_loss else None, mesh, more)
    if mesh.layout.world_size > 1:
        wait_on(lambda: dist.all_reduce(numbers), "all_reduce")
    return tuple(numbers.tolist())


def start_sum(
    shards: Sequence[ParamShard], loss: torch.Tensor, counts_loss: bool, mesh: Mesh, *more: Number
) -> Callable[[], tuple[float, ...]]:
    """As `sum_over_ranks`, of which the result is read later: what is returned waits until all ranks have started it."""
    numbers = _summands(shards, loss if counts_loss else None, mesh, more)
    since, work = now(), dist.all_reduce(numbers, async_op=True)
    assert work is not None

    def result() -> tuple[float, ...]:
        wait_on(work.wait, "all_reduce", since=since)
        return tuple(numbers.tolist())

    return result


def _summands(
    shards: Sequence[ParamShard], loss: torch.Tensor | None, mesh: Mesh, more: Sequence[Number]
) -> torch.Tensor:
    """This rank's summands [2 + len(`more`)], fp64: loss, squared norm of the gradients that it owns, `more`."""
    numbers = torch.zeros(2 + len(more), dtype=torch.float64, device=mesh.device)
    for place, number in enumerate(more, start=2):
        put(numbers, place, number)
    if loss is not None:
        numbers[0] = loss.detach().double()
    numbers[1] = square_sum([p.gradient for p in shards if p.gradient is not None and p.owned(mesh)], mesh.device)
    return numbers


def square_sum(gradients: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """The sum of the squares of all numbers, which have one dtype, in fp64 on `device`. Norms of half precision are in fp32."""
    if not gradients:
        return torch.zeros((), dtype=torch.float64, device=device)
    wide = torch.float32 if gradients[0].dtype.itemsize == 2 else None  # rounded to bf16 a norm is up to 0.2% off
    # Offloaded parameters have their gradients on the host.
    # One kernel for many gradients where torch is a version that was tried; the same bits one by one.
    if tried():
        found: Sequence[torch.Tensor] = torch._foreach_norm(list(gradients), 2, wide)
    else:
        found = [torch.linalg.vector_norm(gradient, dtype=wide) for gradient in gradients]
    norms = torch.stack([norm.to(device, non_blocking=True) for norm in found])
    return norms.double().square().sum()


def clip_factor(norm: float, limit: float | None) -> float:
    """The factor for gradients of this global norm so that it becomes at most `limit` (None: no limit), as in `clip_grad_norm_`."""
    return 1.0 if limit is None else min(1.0, limit / (norm + _EPSILON))


def scale_gradients(shards: Sequence[ParamShard], factor: float) -> None:
    """Multiply every reduced gradient by `factor`."""
    gradients = [p.gradient for p in shards if p.gradient is not None]
    if factor == 1.0 or not gradients:
        return
    if tried():
        torch._foreach_mul_(gradients, factor)
        return
    for gradient in gradients:
        gradient.mul_(factor)
