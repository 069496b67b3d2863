"""Ends a run whose numbers are not finite. Runs the step once more, so that every rank checks its own numbers before they are reduced.

Reduced gradients show little, because a NaN of one rank spreads to all. Each rank reports the first module whose output is not finite,
else the first parameter whose gradient is not, in the order of the passes. Numbers move forward through a pipeline's stages and back, so
the first stage in the direction of the pass is named, whichever ran first: a rank may have several. The ranks of a stage run the same
modules in the same order, so of them those are named that came to it first: the others got it from them. Takes no time until a run fails.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ....strategies.param_shard import parameters
from ....strategies.precision import LossScale
from ...messages.rank_set import format_ranks
from ..batches import Batches
from ..build import TrainerParts
from ..step_record import StepStats
from .base import Callback


class First(NamedTuple):
    """A module or parameter with numbers that are not finite. `place`: its stage, counted in the direction of the pass, and the number of
    the call among those of the rank in that stage.
    """

    place: tuple[int, int]
    name: str


@dataclass
class RankFindings:
    """One rank's first numbers that are not finite, in its own passes; `reduced`: the gradients that were so when the run failed."""

    stage: int
    reduced: tuple[str, ...] = ()
    module: First | None = None
    gradient: First | None = None


@dataclass(frozen=True)
class Attribution:
    """The first place with numbers that are not finite, and its ranks. The first rank is named."""

    ranks: tuple[int, ...]
    parameter: str | None
    message: str

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the incident."""
        accused = {"rank": self.ranks[0]} if self.ranks else {}
        return accused | {"ranks": list(self.ranks), "parameter": self.parameter}


class Diverged(ArithmeticError):
    """The loss or the gradient norm is not finite."""

    remedy = "lower optimizer.lr, add schedule.warmup, or look at the data"

    def __init__(self, what: str, first: Attribution) -> None:
        super().__init__(f"{what}, {first.message}: {self.remedy}")
        self.facts = first.facts


class Overflowed(Diverged):
    """fp16 gradients overflow with every loss scale."""

    remedy = "set precision to bf16 or fp32, lower optimizer.lr, or look at the data"

    def __init__(self, scale: LossScale, first: Attribution) -> None:
        how_often = f"fp16 gradients overflowed in {scale.skipped} steps in a row"
        super().__init__(f"{how_often}, at last with a loss scale of {scale.scale:g}", first)


class NanAttribution(Callback):
    """Ends a run whose loss or gradient norm is not finite, after finding out in which module or gradient that began."""

    def __init__(self, parts: TrainerParts, batches: Batches) -> None:
        self._parts, self._batches = parts, batches

    def before_update(self, stats: StepStats) -> None:
        """Raises `Diverged`, on all ranks. With fp16 only if skipped steps have not helped."""
        scale = self._parts.loss.scale
        passing = stats.skipped and scale is not None and not scale.exhausted
        if passing or (math.isfinite(stats.loss) and math.isfinite(stats.grad_norm)):
            return
        first = attribute_step(self._parts, partial(self._once_more, stats.step))
        if stats.skipped and scale:
            raise Overflowed(scale, first)
        raise Diverged(f"loss {stats.loss}, gradient norm {stats.grad_norm}", first)

    def before_push(self, step: int, loss: float, grad_norm: float) -> None:
        """Raises `Diverged` on this rank alone: the others are in other steps."""
        if math.isfinite(loss) and math.isfinite(grad_norm):
            return
        mine = RankFindings(stage=0)
        with _watching(self._parts, mine):
            self._passes(step)
        others = [RankFindings(stage=0)] * dist.get_rank()
        raise Diverged(f"loss {loss}, gradient norm {grad_norm}", attribute([*others, mine]))

    def _once_more(self, step: int) -> None:
        """The passes of a step whose update was not made."""
        self._parts.parallel.data.publish()
        self._passes(step)
        self._parts.parallel.data.reduce()

    def _passes(self, step: int) -> None:
        self._batches.seed(step)
        self._parts.parallel.runner.train(*self._batches.training(step))


def attribute_step(parts: TrainerParts, once_more: Callable[[], object]) -> Attribution:
    """The finding of all ranks. `once_more` runs the failed step's passes again, from the same parameters. Collective over the world."""
    mine = RankFindings(parts.mesh.index("pipeline"), reduced=_reduced(parts))
    with _watching(parts, mine):
        once_more()
    everyone = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return attribute(everyone)


def _reduced(parts: TrainerParts) -> tuple[str, ...]:
    """Names of the shards whose reduced gradients are not finite, in the order of the backward pass."""
    grads = [(shard.name, shard.gradient) for shard in reversed(parts.parallel.data.shards)]
    return tuple(name for name, grad in grads if grad is not None and not _finite(grad))


@contextmanager
def _watching(parts: TrainerParts, seen: RankFindings) -> Iterator[None]:
    """Record in `seen` the first output and the first gradient that are not finite."""
    handles: list[Any] = []
    stages = [] if parts.mesh.serves else parts.mesh.layout.stages_of(parts.mesh.index("pipeline"))
    for stage, part in zip(stages, parts.parallel.parts, strict=True):
        forward, backward = partial(_forward, seen, _Calls(stage)), partial(_backward, seen, _Calls(-stage))
        named = [(name, module) for name, module in part.named_modules() if name]
        handles += [module.register_forward_hook(partial(forward, name)) for name, module in named]
        if parts.mesh.layout.zero < 3:  # with ZeRO-3, hooks see reduced gradients
            for parameter in parameters([part], parts.mesh):
                handles.append(parameter.value.register_hook(partial(backward, parameter.name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Calls:
    """Counts the calls of a pass in one stage."""

    def __init__(self, stage: int) -> None:
        self._stage, self._count = stage, count()

    def place(self) -> tuple[int, int]:
        """That of the next call."""
        return self._stage, next(self._count)


def _forward(seen: RankFindings, calls: _Calls, name: str, _: nn.Module, __: object, output: object) -> None:
    place = calls.place()
    if isinstance(output, torch.Tensor) and _is_before(place, seen.module) and not _finite(output):
        seen.module = First(place, name)


def _backward(seen: RankFindings, calls: _Calls, name: str, grad: torch.Tensor) -> None:
    place = calls.place()
    if _is_before(place, seen.gradient) and not _finite(grad):
        seen.gradient = First(place, name)


def _is_before(place: tuple[int, int], first: First | None) -> bool:
    return first is None or place < first.place


@torch.no_grad()
def _finite(tensor: torch.Tensor) -> bool:
    local = tensor.detach()
    local = local.to_local() if isinstance(local, DTensor) else local
    return not local.is_floating_point() or bool(torch.isfinite(local).all().item())


def attribute(everyone: Sequence[RankFindings]) -> Attribution:
    """The culprit, from what all ranks saw."""
    if forward := {rank: seen.module for rank, seen in enumerate(everyone) if seen.module}:
        ranks, module = _earliest(forward)
        return Attribution(
            ranks, _gradient_of(everyone, ranks), f"first in the output of {module} on {format_ranks(ranks)}"
        )
    if backward := {rank: seen.gradient for rank, seen in enumerate(everyone) if seen.gradient}:
        ranks, name = _earliest(backward)
        return Attribution(ranks, name, f"first in the gradient of {name} on {format_ranks(ranks)}")
    return _of_reduced(everyone)


def _earliest(found: dict[int, First]) -> tuple[tuple[int, ...], str]:
    """The ranks at the first place, and what the first of them names."""
    place, name = min(found.values(), key=lambda one: one.place)
    ranks = tuple(rank for rank, one in found.items() if one.place == place)
    return ranks, name


def _gradient_of(everyone: Sequence[RankFindings], ranks: Sequence[int]) -> str | None:
    """The first parameter whose gradient is not finite on these ranks."""
    own = [everyone[rank] for rank in ranks]
    names = [one.gradient.name if one.gradient else next(iter(one.reduced), None) for one in own]
    return next((name for name in names if name), None)


def _of_reduced(everyone: Sequence[RankFindings]) -> Attribution:
    """The finding if every rank's own numbers were finite. Then only the summed gradients can be examined."""
    bad = {rank: seen for rank, seen in enumerate(everyone) if seen.reduced}
    if not bad:
        return Attribution((), None, "the step's passes gave finite numbers on every rank when they were run once more")
    last = max(seen.stage for seen in bad.values())
    ranks = tuple(rank for rank, seen in bad.items() if seen.stage == last)
    name = bad[ranks[0]].reduced[0]
    again = "every rank's own numbers were finite when the step was run once more"
    return Attribution(ranks, name, f"first in the summed gradient of {name}, held by {format_ranks(ranks)}; {again}")
