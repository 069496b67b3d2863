"""Engines that train one model on one stream of batches, each as its users would set it up: ours, torch's, DeepSpeed's.

All start from the same weights, read the same rows of the same text, compute the same loss in fp32 and update by AdamW with torch's
fused kernel (DeepSpeed: the client optimizer that it is handed). None of them clips gradients. Ours are what
`workers/trainer/build.py` builds, or, for what a default is worth, that with one thing changed: `ours zero-3 prefetch 1`,
`ours TP chunks 4`, or a name of `STAND_INS`. `layout {…}` is ours with these keys of `train`, as JSON.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from shardyard.strategies.context_parallel.apply import share
from shardyard.strategies.data_parallel.fsdp_comm import Allocate, GlooReduceScatter, SumsInTransit
from shardyard.strategies.data_parallel.stale_messages import Push
from shardyard.strategies.data_parallel.stale_server import StaleServer
from shardyard.strategies.data_parallel.stale_worker import StaleWorker
from shardyard.strategies.layout import own_clocks
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.mesh import make_mesh
from shardyard.strategies.telemetry.clock_sync import Aligned, offset_to_first
from shardyard.strategies.telemetry.comm_counter import axes_of
from shardyard.strategies.telemetry.current import Telemetry, installed
from shardyard.strategies.telemetry.device_clock import clock_of
from shardyard.strategies.telemetry.step_tracer import TRAINING, Span
from shardyard.workers.data.dataset import Rows
from shardyard.workers.models.init import initial_value
from shardyard.workers.models.registry import make
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.trainer.batches import rows_of
from shardyard.workers.trainer.build import TrainerParts, build

#: (inputs, targets) [rows, seq] → this rank's share of the step's loss; one whole optimizer step.
Step = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Engine:
    """`step` trains; `settle` waits for what it left on its way; `rows` are this rank's of the global batch."""

    step: Step
    rows: Rows
    settle: Callable[[], None] = lambda: None
    #: Gets what returns the batch that many (default: one) after the next one, and how many there are.
    expect: Callable[[Callable[..., Any], int], None] = lambda following, left: None
    trace: Callable[[Callable[[], None]], dict[str, float]] | None = (
        None  # runs a step, and returns what a trace says of it
    )


class TorchAllGather(Allocate):
    """What `fully_shard` does by itself: on a CPU it waits."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        work: dist.Work | None = dist.all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        return work


class TorchReduceScatter(Allocate):
    """What `fully_shard` does by itself: on gloo an all-reduce inside."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        work: dist.Work | None = dist.reduce_scatter_single(
            output_tensor, input_tensor, op=op, group=group, async_op=async_op
        )
        return work


#: Schedules of a pipeline with a stage on each rank, or several.
PIPELINES = ("1f1b", "zb-h1", "zb-h2", "zbv", "interleaved-zb", "dualpipev", "2bw", "pipedream")
#: How the name of a parameter server ends → what its workers wait for.
MODES: dict[str, dict[str, Any]] = {"": {}, "-stale": {"mode": "stale", "bound": 2}, "-async": {"mode": "async"}}
#: Variant of ours at stage 3 → what it sends by in the place of our own messages: (all-gather, reduce-scatter).
STAND_INS: dict[str, tuple[Callable[[], Any] | None, Callable[[], Any] | None]] = {
    "torch's messages": (TorchAllGather, TorchReduceScatter),
    "torch's all-gather": (TorchAllGather, None),
    "torch's reduce-scatter": (None, TorchReduceScatter),
    "waiting all-to-all": (None, lambda: GlooReduceScatter(SumsInTransit(0))),
}

#: Variant of DualPipeV whose pairs are not overlapped.
IN_ORDER = "in order"


class Contenders:
    """Makes engines by name on the running process group. `train` is a train spec without its layout."""

    def __init__(self, train: dict[str, Any], cache: Path) -> None:
        self._train, self._cache = train, cache
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self.spec = TrainSpec.model_validate(train)

    def make(self, name: str) -> Engine:
        family, _, rest = name.partition(" ")
        makers = {"ours": self._ours, "layout": self._laid_out, "torch": self._torch, "deepspeed": self._deepspeed}
        return makers[family](rest)

    def _own_rows(self) -> slice:
        size = self.spec.global_batch // self._ranks
        return slice(self._rank * size, (self._rank + 1) * size)

    def _ours(self, name: str) -> Engine:
        layout, _, variant = name.partition(" ")
        overlap = dict(self._train["overlap"])
        if variant.startswith("prefetch "):
            overlap["prefetch"] = int(variant.removeprefix("prefetch "))
        if variant.startswith("chunks "):
            overlap["tensor_chunks"] = int(variant.removeprefix("chunks "))
        keys: dict[str, Any] = {"layout": layout_of(layout, self._ranks), "overlap": overlap}
        if layout == "pipedream":  # no engine clips here; its ranks must know
            keys["optimizer"] = {**self._train["optimizer"], "clip_norm": None}
        built = self._built(keys)
        if variant in STAND_INS:
            _send_by(built.parallel.parts[0], *STAND_INS[variant])
        if variant == IN_ORDER:
            _run_in_order(built.parallel.runner)
        return _our_engine(built)

    def _laid_out(self, keys: str) -> Engine:
        return _our_engine(self._built(json.loads(keys)))

    def _built(self, keys: dict[str, Any]) -> TrainerParts:
        """Ours with these keys of `train`."""
        train = TrainSpec.model_validate({**self._train, **keys})
        run = Run(job="bench", train=train, checkpoints=self._cache / "checkpoints", cache=self._cache)
        return build(run, make_mesh(run.train.layout, torch.device("cpu")))

    def _model(self) -> nn.Module:
        arch = self.spec.architecture(256)
        assert arch is not None
        model = make(arch)
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.copy_(initial_value(name, value.shape, self.spec.seed, arch))
        return model

    def _torch(self, kind: str) -> Engine:
        model = self._model()
        if kind == "TP":
            _plain_tensor_parallel(model, self._ranks)
        elif kind.startswith("FSDP2"):
            _fully_sharded(model, {"": True, "without reshard": False, "as it comes": None}[kind.partition(" ")[2]])
        elif kind == "DDP":
            model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = self._adamw(model)
        rows = slice(0, self.spec.global_batch) if kind == "TP" else self._own_rows()
        return Engine(partial(_torch_step, model, optimizer, self._loss(rows), 1 / self._ranks), rows)

    def _loss(self, rows: slice) -> TokenLoss:
        """The mean over this rank's tokens: torch's engines and DeepSpeed average over ranks."""
        return TokenLoss((rows.stop - rows.start) * self.spec.data.seq_len)

    def _adamw(self, model: nn.Module) -> torch.optim.Optimizer:
        """A group per kind of tensor: the fused kernel takes no mixture of plain tensors and DTensors."""
        given = self.spec.optimizer
        groups: dict[Any, dict[str, Any]] = {}
        for value in model.parameters():
            key = (value.dim() > 1, type(value.data))
            decay = given.weight_decay if value.dim() > 1 else 0.0
            groups.setdefault(key, {"params": [], "weight_decay": decay})["params"].append(value)
        betas = (given.beta1, given.beta2)
        return torch.optim.AdamW(list(groups.values()), lr=given.lr, betas=betas, eps=given.eps, fused=True)

    def _deepspeed(self, kind: str) -> Engine:
        # Its collectives are compiled on first use, once per environment; a build that was ended elsewhere leaves a lock.
        os.environ |= {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(Path(sys.prefix) / "extensions")}
        import deepspeed

        model, size = self._model(), self.spec.global_batch
        settings = {
            "train_batch_size": size,
            "train_micro_batch_size_per_gpu": size // self._ranks,
            "zero_optimization": {"stage": int(kind[-1]), "overlap_comm": False},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "steps_per_print": 10**9,
        }
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=self._adamw(model), config=settings, dist_init_required=False
        )
        rows = self._own_rows()
        return Engine(partial(_deepspeed_step, engine, self._loss(rows), 1 / self._ranks), rows)


def layout_of(name: str, ranks: int) -> dict[str, Any]:
    """The layout of ours that a name stands for, on all `ranks`. Half of them are servers where there are any.

    A schedule's name with `+experts` has half as many stages, and two replicas of each that share its experts.
    """
    schedule, _, experts = name.partition("+")
    if experts:
        shared = {"pipeline": ranks // 2, "data": 2, "expert": 2}
        return {**shared, "schedule": schedule, "micro_batch": 1}
    root, side = math.isqrt(ranks), round(ranks ** (1 / 3))
    half = ranks // 2
    others: dict[str, dict[str, Any]] = {
        "TP": {"tensor": ranks},
        "2-D": {"tensor": {"mode": "2d", "shape": [root, root]}},
        "2.5-D": {"tensor": {"mode": "2.5d", "shape": [side, side, side]}},
        "3-D": {"tensor": {"mode": "3d", "shape": [side, side, side]}},
        **{name: {"pipeline": ranks, "schedule": name, "micro_batch": 1} for name in PIPELINES},
        "pipedream": {"pipeline": ranks, "schedule": "pipedream"},  # a step is one micro-batch
        **{f"parameter-server{end}": _served(half, **mode) for end, mode in MODES.items()},
    }
    return others.get(name) or {"data": ranks, "zero": int(name[-1])}


def _served(half: int, **mode: Any) -> dict[str, Any]:
    return {"data": half, "parameter_server": {"servers": half, **mode}}


def _our_engine(built: TrainerParts) -> Engine:
    layout = built.spec.layout
    if own_clocks(layout):
        own = _OwnClock(built)
        return Engine(own.step, rows_of(built), own.settle)
    part = layout.division.rows / layout.tensor  # ranks with the same tokens have the same loss
    runner, settle = built.parallel.runner, built.parallel.data.settle
    return Engine(partial(_our_step, built, part), rows_of(built), settle, runner.expect, partial(_traced, built))


def _our_step(built: TrainerParts, part: float, x: Tensor, y: Tensor) -> Tensor:
    loss = built.parallel.runner.train(share(x, built.mesh), share(y, built.mesh))
    built.parallel.data.reduce()
    built.parallel.runner.before_update()
    built.optimizer.step()
    built.parallel.data.publish()
    return loss * part


class _OwnClock:
    """The steps of a worker or a server that has a clock of its own, as `workers/trainer/own_clocks.py` takes them.

    All meet at the end of a turn: a server that expects gradients would receive those of the next engine, which has the same group.
    """

    def __init__(self, built: TrainerParts) -> None:
        self._built, self._clock, self._pushed = built, 0, False

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        data = self._built.parallel.data
        self._clock += 1
        if isinstance(data, StaleServer):
            data.serve(self._clock, lambda _: self._built.optimizer.step())
            return torch.zeros(())
        assert isinstance(data, StaleWorker)
        if self._pushed:
            data.pull(meets=False)
        loss = self._built.parallel.runner.train(x, y)
        data.reduce()
        data.push(Push(1 / self._built.loss.factor, loss.item(), squares=0.0, rate=1.0, meets=False))
        self._pushed = True
        return loss

    def settle(self) -> None:
        data = self._built.parallel.data
        if self._pushed:
            assert isinstance(data, StaleWorker)
            data.pull(meets=True)
            data.take_totals()
            self._pushed = False
        data.settle()


def _traced(built: TrainerParts, train: Callable[[], None]) -> dict[str, float]:
    """One step of a pipeline. `bubble`: the share of the schedule in which this rank computes nothing; `simulated`: that of all ranks
    with the same durations and free messages. `exchange_s`, `waited_s`: see `exchanges`. Collective over all ranks.
    """
    telemetry, epoch = Telemetry(), time.time() - time.perf_counter()
    with installed(telemetry):
        first = offset_to_first(epoch)
        telemetry.tracer.begin(clock_of(built.mesh.device), axes_of(built.mesh))
        train()
        recorded = telemetry.tracer.end()
        clock = Aligned(first, offset_to_first(epoch))
    (replay,) = built.parallel.runner.replay([recorded], clock)
    exchange_s, waited_s = exchanges(recorded.spans)
    bubbles = {"bubble": replay.bubble.measured, "simulated": replay.bubble.simulated}
    return {**bubbles, "place": replay.place, "exchange_s": exchange_s, "waited_s": waited_s}


def exchanges(spans: Iterable[Span]) -> tuple[float, float]:
    """Seconds for which all-to-alls were under way, and those of them for which the training thread waited.

    A wait for one that goes on in the background is recorded just before the background's own span, and counts as far as it lies in that:
    the exchange may have been done before the thread asked for it. A wait without such a span is an exchange of its own.
    """
    under_way = waited = 0.0
    wait: Span | None = None
    for span in spans:
        if not span.name.startswith("all_to_all"):
            continue
        if span.lane == TRAINING:
            under_way, waited = under_way + _seconds(wait), waited + _seconds(wait)
            wait = span
        else:
            under_way += _seconds(span)
            waited += 0.0 if wait is None else max(0.0, min(wait.end, span.end) - max(wait.start, span.start))
            wait = None
    return under_way + _seconds(wait), waited + _seconds(wait)


def _seconds(span: Span | None) -> float:
    return 0.0 if span is None else span.end - span.start


def _torch_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: TokenLoss, share: float, x: Tensor, y: Tensor
) -> Tensor:
    loss = loss_of(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach() * share


def _deepspeed_step(engine: Any, loss_of: TokenLoss, share: float, x: Tensor, y: Tensor) -> Tensor:
    loss = loss_of(engine(x), y)
    engine.backward(loss)
    engine.step()
    return loss.detach() * share


def _send_by(model: nn.Module, gather: Callable[[], Any] | None, reduce: Callable[[], Any] | None) -> None:
    for module in model.modules():
        if isinstance(module, FSDPModule) and gather is not None:
            module.set_custom_all_gather(gather())
        if isinstance(module, FSDPModule) and reduce is not None:
            module.set_custom_reduce_scatter(reduce())


def _run_in_order(pipeline: Any) -> None:
    """Let the two passes of a pair run one after the other, as torch does by itself."""
    pipeline._pair = None
    pipeline._schedule._comp_type_to_function_map.clear()


def _fully_sharded(model: nn.Module, reshard: bool | None) -> None:
    """`None`, torch's default, leaves embedding and head gathered between forward and backward: less than 3Ψ of traffic."""
    for block in model.get_submodule("blocks").children():
        fully_shard(block, reshard_after_forward=reshard)
    fully_shard(model, reshard_after_forward=reshard)


def _plain_tensor_parallel(model: nn.Module, ranks: int) -> None:
    """As torch's tutorial has it: columns, then rows; norms stay plain and logits are made whole."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan: dict[str, Any] = {f"blocks.*.attention.{name}": ColwiseParallel() for name in "qkv"}
    plan |= {f"blocks.*.mlp.{name}": ColwiseParallel() for name in ("gate", "up")}
    plan |= {"blocks.*.attention.o": RowwiseParallel(), "blocks.*.mlp.down": RowwiseParallel()}
    plan |= {
        "embed": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(model, init_device_mesh("cpu", (ranks,)), plan)
