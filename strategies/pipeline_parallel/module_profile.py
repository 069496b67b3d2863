"""Measures what each module of a pipeline costs on this rank's device (PipeDream's profiler, 1806.03377, section 3.1).

Every rank measures every module, whole and on one micro-batch: a forward and a backward pass of the embedding, of each block, and of the
head with the loss; and a message of the largest hidden state to the next rank of the pipeline. Then all ranks of the world take the median
of each number over all ranks. So all of them split the model alike.

Equal blocks are measured once: those of a model that the spec describes by its sizes. Those of a module of the user's own are measured one
by one. Nothing that was measured is trained. Of data parallelism and ZeRO there is no traffic in these times.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, median_low
from typing import Final

import torch
import torch.distributed as dist
from torch import nn

from ..activation_memory.checkpointing import apply_recompute
from ..chunked_loss import leave_heads
from ..cost.stage_balance import ModuleCosts
from ..mesh import Mesh
from ..parallelize import Recipe
from ..telemetry.device_clock import clock_of
from .split import blocks_of, keep

#: Runs of a module before those that are timed, and the number of those, whose median counts.
_WARM_UP: Final = 2
_ROUNDS: Final = 5
_ENDS: Final = ("embed", "positions", "norm", "head")


def measured(recipe: Recipe, mesh: Mesh, tokens: torch.Tensor) -> ModuleCosts:
    """Nanoseconds of a micro-batch's passes through each module, and of its messages over each boundary.

    `tokens` [micro-batch, seq] int64 on the mesh's device are the inputs, and the targets. Collective over the world. Raises `Refusal`
    for a module that is not embed → blocks → norm → head.
    """
    own = _Probe(recipe, mesh).costs(tokens)
    if mesh.device.type == "cuda":
        torch.cuda.empty_cache()
    everyone = [own] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    return agreed(everyone)


def agreed(costs: Sequence[ModuleCosts]) -> ModuleCosts:
    """The lower median of each number over all ranks."""

    def medians(numbers: Iterator[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(median_low(of_ranks) for of_ranks in zip(*numbers, strict=True))

    return ModuleCosts(
        median_low([one.embed for one in costs]),
        medians(one.blocks for one in costs),
        median_low([one.head for one in costs]),
        medians(one.messages for one in costs),
    )


class _Probe:
    """This rank's measurements. Inside, `_model` is reduced to one module at a time, which alone is on the device."""

    def __init__(self, recipe: Recipe, mesh: Mesh) -> None:
        self._recipe, self._mesh, self._clock = recipe, mesh, clock_of(mesh.device)
        self._model = recipe.build()
        self._blocks = len(blocks_of(self._model))
        apply_recompute(list(blocks_of(self._model).values()), recipe.memory_options.recompute)

    def costs(self, tokens: torch.Tensor) -> ModuleCosts:
        """This rank's own numbers."""
        equal = self._recipe.on_meta
        embed, hidden = self._inner((), tokens, first=True)
        blocks, sizes = [], [hidden.nbytes]
        for block in range(1 if equal else self._blocks):
            took, hidden = self._inner((block,), hidden, first=False)
            blocks.append(took)
            sizes.append(hidden.nbytes)
        if equal:
            blocks, sizes = blocks * self._blocks, sizes[:1] + sizes[1:] * self._blocks
        return ModuleCosts(embed, tuple(blocks), self._head(hidden, tokens), self._messages(sizes))

    def _inner(self, blocks: Collection[int], given: torch.Tensor, first: bool) -> tuple[int, torch.Tensor]:
        """The time of these blocks, with the embedding if `first`; and what they return."""
        with self._only(blocks, first=first, last=False):
            found: list[torch.Tensor] = []

            def passes() -> None:
                output = self._model(_leaf(given))
                found[:] = [output.detach()]
                if output.requires_grad:
                    torch.autograd.backward(output, torch.ones_like(output))

            return self._timed(passes), found[0]

    def _head(self, hidden: torch.Tensor, targets: torch.Tensor) -> int:
        """The time of the last norm, the head and the loss."""
        recipe = self._recipe
        with self._only((), first=False, last=True):
            chunked = recipe.loss_chunk and leave_heads([self._model], recipe.loss, self._mesh, recipe.loss_chunk)
            loss = chunked or recipe.loss
            return self._timed(lambda: torch.autograd.backward(loss(self._model(_leaf(hidden)), targets)))

    def _messages(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The time of a hidden state of each of these sizes, and of its gradient on the way back."""
        content = torch.zeros(max(sizes), dtype=torch.uint8, device=self._mesh.device)
        arrived = torch.empty_like(content)
        both_ways = 2 * self._timed(lambda: _pass_on(content, arrived, self._mesh))
        return tuple(round(both_ways * size / max(sizes)) for size in sizes)

    @contextmanager
    def _only(self, blocks: Collection[int], first: bool, last: bool) -> Iterator[None]:
        """Inside, the model is that part of it, on the device and in the dtype of computation."""
        model, device, dtype = self._model, self._mesh.device, self._recipe.precision.compute
        whole = {name: getattr(model, name) for name in ("blocks", *_ENDS) if hasattr(model, name)}
        model.blocks = nn.ModuleDict(whole["blocks"].items())
        keep(model, blocks, first, last)
        try:
            if self._recipe.on_meta:
                _fill(model.to_empty(device=device).to(dtype))
            else:
                model.to(device=device, dtype=dtype)
            yield
        finally:
            model.zero_grad()
            model.to("meta" if self._recipe.on_meta else "cpu")
            for name, value in whole.items():
                setattr(model, name, value)

    def _timed(self, run: Callable[[], object]) -> int:
        """The median time of a run in nanoseconds, at least 1."""
        moments = []
        for _ in range(_WARM_UP + _ROUNDS):
            start = self._clock.now()
            run()
            moments.append((start, self._clock.now()))
        return max(1, round(1e9 * median(self._clock.seconds(*each) for each in moments[_WARM_UP:])))


def _leaf(given: torch.Tensor) -> torch.Tensor:
    """Another tensor of the same memory, whose gradient is computed where it has one, as that of a message from the stage before."""
    leaf = given.detach()
    return leaf.requires_grad_() if leaf.is_floating_point() else leaf


@torch.no_grad()
def _fill(model: nn.Module) -> None:
    """Small values: with zeros, infinities or subnormals some kernels take another time."""
    for value in model.parameters():
        generator = torch.Generator(value.device).manual_seed(0)
        value.normal_(0.0, 0.02, generator=generator)


def _pass_on(content: torch.Tensor, arrived: torch.Tensor, mesh: Mesh) -> None:
    """Send to the next rank of the pipeline, and receive from the one before; the last one's next is the first."""
    group, place, ranks = mesh.group("pipeline"), mesh.index("pipeline"), mesh.size("pipeline")
    operations = [
        dist.P2POp(dist.isend, content, group=group, group_peer=(place + 1) % ranks),
        dist.P2POp(dist.irecv, arrived, group=group, group_peer=(place - 1) % ranks),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
