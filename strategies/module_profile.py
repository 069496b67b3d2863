"""Measures what each module of a pipeline costs on this rank's device (PipeDream's profiler, 1806.03377, section 3.1).

Every rank measures every module on one micro-batch: a forward and a backward pass of the embedding, of each block, and of the head with
the loss; and a message of the largest hidden state to the next rank of the pipeline, and one of gradients. Then all ranks of the world
take the median of each number over all ranks. So all of them split the model alike.

The modules are those of the run: divided over tensor and context ranks, which measure them together, recomputed, compiled, in fp8. So a
time has the messages inside a module. With packed documents the attention is that within documents.

Equal blocks are measured once: those of a model that the spec describes by its sizes. Those of a module of the user's own are measured one
by one. Nothing that was measured is trained. Of data parallelism and ZeRO there is no traffic in these times.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, median_low
from typing import Final

import torch
import torch.distributed as dist
from torch import nn

from .chunked_loss import leave_heads
from .cost.stage_balance import ModuleCosts
from .documents import Packed, taken
from .expert_parallel import Tally
from .layout import Refusal
from .mesh import Mesh
from .moved_module import move
from .parallelize import Recipe, apply_inside, filler, own_parameters
from .param_shard import Parameter, parameters
from .pipeline_parallel.forward_only import Tensors
from .pipeline_parallel.split import blocks_of, keep, used_by
from .telemetry.device_clock import clock_of

#: Runs of a module before those that are timed, and the number of those, whose median counts.
_WARM_UP: Final = 2
_ROUNDS: Final = 5
#: The most bytes of a message of gradients that is timed. Larger ones count by their size.
_MOST_BYTES: Final = 64 << 20
_ENDS: Final = ("embed", "positions", "norm", "head")


def measured(recipe: Recipe, mesh: Mesh, inputs: torch.Tensor | Packed, targets: torch.Tensor) -> ModuleCosts:
    """Nanoseconds of a micro-batch's passes through each module, of its messages over each boundary, and of messages of gradients.

    `inputs`, `targets`: what a rank of the first and of the last stage gets of a micro-batch, [micro-batch, positions] int64 on the
    mesh's device. Collective over the world. Raises `Refusal` for a module that is not embed → blocks → norm → head.
    """
    own = _Probe(recipe, mesh, inputs, targets).costs()
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
        medians(one.gradients for one in costs),
    )


@dataclass(frozen=True)
class _Module:
    """What was measured of a module: nanoseconds of its passes, and bytes of its output and of its gradients on this rank."""

    took: int
    output: int
    gradients: int


class _Probe:
    """This rank's measurements. Inside, `_model` is reduced to one module at a time, which alone is on the device."""

    def __init__(self, recipe: Recipe, mesh: Mesh, inputs: torch.Tensor | Packed, targets: torch.Tensor) -> None:
        self._recipe, self._mesh, self._clock = recipe, mesh, clock_of(mesh.device)
        self._tokens, self._more = taken(inputs)
        self._targets = targets
        self._model = recipe.build()
        self._blocks = len(blocks_of(self._model))
        if used_by(self._model):
            raise Refusal(
                "layout.pipeline",
                f"a profile times modules one by one, and blocks of {type(self._model).__name__} use others of its modules (used_by).",
                "Leave split: profile out, or say the blocks of each stage: pipeline: {stages: 2, blocks: [2, 2]}.",
            )
        apply_inside(self._model, recipe, mesh, Tally(mesh))

    def costs(self) -> ModuleCosts:
        """This rank's own numbers."""
        equal = self._recipe.on_meta
        embed, hidden = self._inner((), (self._tokens,), first=True)
        blocks = []
        for block in range(1 if equal else self._blocks):
            found, hidden = self._inner((block,), hidden, first=False)
            blocks.append(found)
        if equal:
            blocks *= self._blocks
        head = self._head(hidden)
        return ModuleCosts(
            embed.took,
            tuple(block.took for block in blocks),
            head.took,
            tuple(2 * took for took in self._messages([module.output for module in (embed, *blocks)])),
            self._messages([module.gradients for module in (embed, *blocks, head)]),
        )

    def _inner(self, blocks: Collection[int], given: Tensors, first: bool) -> tuple[_Module, Tensors]:
        """The measurements of these blocks, with the embedding if `first`; and what they pass on."""
        with self._only(blocks, first=first, last=False):
            passed: list[torch.Tensor] = []

            def passes() -> None:
                output = self._model(*map(_leaf, given), **self._more)
                outputs = output if isinstance(output, tuple) else (output,)
                passed[:] = [one.detach() for one in outputs]
                learning = [one for one in outputs if one.requires_grad]
                if learning:
                    torch.autograd.backward(learning, [torch.ones_like(one) for one in learning])

            took = self._timed(passes)
            return _Module(took, sum(one.nbytes for one in passed), self._gradient_bytes()), tuple(passed)

    def _head(self, hidden: Tensors) -> _Module:
        """The measurements of the last norm, the head and the loss."""
        recipe = self._recipe
        with self._only((), first=False, last=True):
            chunked = recipe.loss_chunk and leave_heads([self._model], recipe.loss, self._mesh, recipe.loss_chunk)
            loss = chunked or recipe.loss

            def passes() -> None:
                torch.autograd.backward(loss(self._model(*map(_leaf, hidden), **self._more), self._targets))

            return _Module(self._timed(passes), 0, self._gradient_bytes())

    def _gradient_bytes(self) -> int:
        """Bytes in which the gradients of what `_model` is reduced to are summed."""
        elements = sum(parameter.local.numel() for parameter in parameters([self._model], self._mesh))
        return elements * self._recipe.precision.gradients.itemsize

    def _messages(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The times of messages of these numbers of bytes to the next rank of the pipeline, by the time of the largest."""
        bytes_sent = max(1, min(max(sizes), _MOST_BYTES))
        content = torch.zeros(bytes_sent, dtype=torch.uint8, device=self._mesh.device)
        arrived = torch.empty_like(content)
        took = self._timed(lambda: _pass_on(content, arrived, self._mesh))
        return tuple(round(took * size / bytes_sent) for size in sizes)

    @contextmanager
    def _only(self, blocks: Collection[int], first: bool, last: bool) -> Iterator[None]:
        """Inside, the model is that part of it, on the device and in the dtype of computation."""
        model = self._model
        whole = {name: getattr(model, name) for name in ("blocks", *_ENDS) if hasattr(model, name)}
        model.blocks = nn.ModuleDict(whole["blocks"].items())
        keep(model, blocks, first, last)
        try:
            with self._allocated():
                yield
        finally:
            for name, value in whole.items():
                setattr(model, name, value)

    @contextmanager
    def _allocated(self) -> Iterator[None]:
        """Inside, this rank's parts of the model's parameters are on the device, in the dtype of computation."""
        model, device, dtype = self._model, self._mesh.device, self._recipe.precision.compute
        if self._recipe.on_meta:
            before = [(owner, *own) for owner in model.modules() for own in own_parameters(owner)]
            filler([model], self._recipe, self._mesh, dtype, _small)(model)
        else:
            before = []
            move(model, device, dtype, dtype)
        try:
            yield
        finally:
            model.zero_grad()
            for owner, name, value in before:
                setattr(owner, name, value)
            if not self._recipe.on_meta:
                model.to("cpu")

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


def _small(_: Parameter, local: torch.Tensor) -> None:
    """Fill `local` with small values: with zeros, infinities or subnormals some kernels take another time."""
    local.normal_(0.0, 0.02, generator=torch.Generator(local.device).manual_seed(0))


def _pass_on(content: torch.Tensor, arrived: torch.Tensor, mesh: Mesh) -> None:
    """Send to the next rank of the pipeline, and receive from the one before; the last one's next is the first."""
    group, place, ranks = mesh.group("pipeline"), mesh.index("pipeline"), mesh.size("pipeline")
    operations = [
        dist.P2POp(dist.isend, content, group=group, group_peer=(place + 1) % ranks),
        dist.P2POp(dist.irecv, arrived, group=group, group_peer=(place - 1) % ranks),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
