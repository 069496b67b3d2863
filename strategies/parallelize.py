"""The order in which strategies are applied, and the reasons for it.

pipeline split → tensor → context → experts → fp8 → recompute → compile → activation offload → allocate → data/ZeRO → schedule.

- The split comes first so that the rest sees only this rank's modules.
- Tensor, context and experts come before recompute, whose wrapped forward must contain their communication.
- fp8, which replaces linear layers, comes before the same wrapping.
- Recompute comes before compile, which must see what is kept. Where backward passes run in two halves it comes after it: the compiler
  does not follow `split_checkpoint.py`. Full recompute has compile on both sides: a block that is no single graph is compiled inside.
- Activation offload wraps both, so that a block that recomputes moves only its input.
- Parameters are allocated before data parallelism, which shards them (stage 3 block by block, so that no rank ever holds the whole
  model). Its hooks are outside all wrapped forwards, so that parameters are there when a block runs, and when it runs again.
- After it has reduced, tensor ranks share the sums of what they hold whole, and then stages add up those of tied weights.

The values come last, into the param shards: a rank draws, reads or restores only what it holds.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .activation_memory.checkpointing import apply_recompute
from .activation_memory.offload import offload_activations
from .activation_memory.state_file import StateFile
from .batch import Batch
from .chunked_loss import leave_heads
from .comm_overlap import Overlap
from .compile import apply_compile
from .context_parallel.apply import apply_context
from .cost.stage_balance import ModuleCosts
from .data_parallel.ddp import DDP
from .data_parallel.fsdp import FullyShard, ShardPlace, blocks
from .data_parallel.master_weights import Masters
from .data_parallel.parameter_server import Server, Worker
from .data_parallel.serving import Serving
from .data_parallel.stale_server import StaleServer
from .data_parallel.stale_worker import StaleWorker
from .data_parallel.zero import ShardedOptimizer
from .data_strategy import DataStrategy
from .delayed_rules import alternates
from .expert_balance import ExpertBalance
from .expert_parallel import Tally, apply_experts, mixes
from .fp8 import apply_fp8
from .gradient_accumulation import Accumulate
from .layout import Layout, Refusal, own_clocks
from .loss import TokenLoss
from .memory_options import MemoryOptions, offloads_a_part, splits_backward, tied_apart
from .mesh import Mesh
from .moved_module import move
from .param_shard import Parameter, parameters, slice_of
from .pipeline_parallel.alternating import AlternatingPipeline
from .pipeline_parallel.continuous import ContinuousPipeline
from .pipeline_parallel.schedule import Pipeline, Split
from .pipeline_parallel.split import module_costs, split
from .pipeline_parallel.stage_shapes import StageShapes
from .pipeline_parallel.stashing import StashingPipeline
from .pipeline_parallel.tied_weights import check_sharding, held_by_several, share, sum_tied_grads
from .precision import Precision
from .runner import Runner
from .tensor_parallel.apply import apply_tensor
from .tensor_parallel.whole_gradients import share_whole_grads

#: Called with a parameter and this rank's part of it, before it is rounded to the compute dtype.
Keep = Callable[[Parameter, torch.Tensor], None]


@dataclass(frozen=True)
class Parallel:
    """A model on its mesh, ready to train."""

    parts: list[nn.Module]
    data: DataStrategy
    runner: Runner
    tally: Tally
    balance: ExpertBalance


@dataclass(frozen=True)
class Recipe:
    """What to distribute: `build()` returns the whole model, with its values or `on_meta`.

    The parameters of a model that is built on the meta device are NaN until its param shards are filled and published.
    """

    build: Callable[[], nn.Module]
    on_meta: bool
    batch: Batch
    precision: Precision
    memory_options: MemoryOptions
    loss: TokenLoss
    overlap: Overlap
    share: Callable[[], float]  # the factor of a token's loss in a backward pass
    costs: ModuleCosts | None = None  # work per module, by which a pipeline is split; default: by number of parameters
    shapes: StageShapes | None = None  # of a pipeline's stages, where they are known before they run
    loss_chunk: int | None = None  # tokens whose logits exist at a time; None: all of a micro-batch
    state_file: StateFile | None = None  # of the state that is on a disk
    ends_apart: bool = False  # whether the ranks of a pipeline end a step at different times
    tied_ends: bool = False  # whether the first and the last stage share a weight


def parallelize(recipe: Recipe, mesh: Mesh) -> Parallel:
    """Apply the mesh's layout to the model. Raises `Refusal` for what the model does not support."""
    if mesh.serves:
        return _serve(recipe, mesh)
    stages = mesh.layout.stages_of(mesh.index("pipeline"))
    costs = recipe.costs or (module_costs(recipe.build()) if mesh.layout.stages > 1 else None)
    parts, mixed = [], False
    for stage in stages:
        whole = recipe.build()
        mixed = mixes(whole)
        parts.append(whole if costs is None else split(whole, stage, mesh.layout, costs))
    if offloads_a_part(recipe.memory_options) and held_by_several(parts, mesh.layout):
        raise tied_apart()
    if costs is None:  # else a stage may have none, and the model has
        _check_blocks(parts[0], recipe)
    tally = Tally(mesh, mixed)
    for part in parts:
        apply_inside(part, recipe, mesh, tally)
    if (
        mesh.layout.pipeline > 1 and mesh.layout.tensor > 1 and not recipe.on_meta
    ):  # a model of the user's own, with its own plan
        check_sharding(parts, mesh)
    balance = ExpertBalance(parts, mesh, recipe.precision.master)
    share(parts, scalars=mesh.layout.zero == 3)  # stage 3 shards each part by itself, but for scalars
    chunked = recipe.loss_chunk and leave_heads(parts, recipe.loss, mesh, recipe.loss_chunk)
    loss = chunked or recipe.loss
    own = _apply_data(parts, recipe, mesh)
    data = sum_tied_grads(share_whole_grads(own, mesh), parts, mesh)
    if mesh.layout.stages > 1:
        assert costs is not None
        microbatches, how = recipe.batch.microbatches, Split(costs, recipe.shapes)
        if mesh.layout.versions > 1:
            assert isinstance(own, DDP), "the rules refuse ZeRO"
            runner = _delayed(mesh.layout, microbatches, recipe.ends_apart)(parts, mesh, microbatches, loss, how, own)
            runner.ends_apart, runner.tied_ends = recipe.ends_apart, recipe.tied_ends
            return Parallel(parts, data, runner, tally, balance)
        return Parallel(parts, data, Pipeline(parts, mesh, microbatches, loss, how, data), tally, balance)
    (whole,) = parts
    accumulate = Accumulate(whole, data, recipe.batch.microbatches, loss, within=bool(chunked))
    return Parallel(parts, data, accumulate, tally, balance)


def _check_blocks(model: nn.Module, recipe: Recipe) -> None:
    """Raise `Refusal` for an option of the model's repeated blocks if none are found."""
    options = recipe.memory_options
    asked = {
        "precision": recipe.precision.fp8,
        "recompute": options.recompute.mode != "none",
        "compile": options.compile,
        "offload.activations": options.offload.activations,
    }
    field = next((name for name, is_asked in asked.items() if is_asked), None)
    if field is not None and not any(blocks(model)):
        raise Refusal(
            field,
            f"it applies to repeated blocks, and {type(model).__name__} has no container of modules among its attributes.",
            "Let its attribute `blocks` be the nn.ModuleList or nn.ModuleDict of them, or leave this out.",
        )


def _delayed(layout: Layout, microbatches: int, ends_apart: bool) -> type[ContinuousPipeline]:
    """The runner of a pipeline with delayed gradients."""
    if layout.schedule == "pipedream":
        return StashingPipeline
    return AlternatingPipeline if alternates(layout, microbatches, ends_apart) else ContinuousPipeline


def _serve(recipe: Recipe, mesh: Mesh) -> Parallel:
    """A parameter server: param shards without a model that computes."""
    kind = StaleServer if own_clocks(mesh.layout) else Server
    data = kind(parameters([recipe.build()], mesh), mesh, recipe.precision, recipe.overlap)
    return Parallel([], data, Serving(), Tally(mesh), ExpertBalance([], mesh, recipe.precision.master))


def apply_inside(part: nn.Module, recipe: Recipe, mesh: Mesh, tally: Tally) -> None:
    """Apply what changes how modules compute: from tensor parallelism to activation offload. Its parameters are not allocated yet."""
    halves = splits_backward(mesh.layout)
    apply_tensor(part, mesh, recipe.overlap.tensor_chunks)
    apply_context(part, mesh)
    apply_experts(part, mesh, recipe.share, tally)
    options = recipe.memory_options
    recomputed = options.recompute.mode != "none" and not options.compile
    apply_fp8(list(blocks(part)), recipe.precision, mesh.device, halves, recomputed)
    _apply_memory_options(list(blocks(part)), options, mesh, halves)


def _apply_memory_options(blocks: Sequence[nn.Module], memory_options: MemoryOptions, mesh: Mesh, halves: bool) -> None:
    """Apply recompute, compile and activation offload, block by block. `halves`: a schedule runs backward passes in two halves."""
    compiled, recompute = memory_options.compile, memory_options.recompute
    full = recompute.mode == "full"
    # Of a recomputed block torch compiles one graph, or nothing. Then `checkpoint` runs as it is, and the parts inside are compiled.
    if compiled and (halves or full):
        apply_compile(blocks, mesh.device, halves)
    apply_recompute(blocks, recompute, halves)
    # In the graph of a recomputed block torch does not keep the meshes of DTensors, as the weights of tensor ranks are.
    if compiled and not halves and not (full and mesh.size("tensor") > 1):
        apply_compile(blocks, mesh.device)
    if memory_options.offload.activations:
        offload_activations(blocks)


def _apply_data(parts: list[nn.Module], recipe: Recipe, mesh: Mesh) -> DataStrategy:
    stage, precision, offload = mesh.layout.zero, recipe.precision, recipe.memory_options.offload
    if stage == 3:  # its shards are the masters
        fill = filler(parts, recipe, mesh, precision.master, lambda _, __: None)
        place = ShardPlace(offload.parameters, recipe.state_file if offload.parameters else None)
        return FullyShard(parts, mesh, precision, fill, recipe.overlap, place)
    if mesh.layout.servers:  # which have the masters
        fill = filler(parts, recipe, mesh, precision.compute, lambda _, __: None)
        for part in parts:
            fill(part)
        return (StaleWorker if own_clocks(mesh.layout) else Worker)(parts, mesh, precision, recipe.overlap)
    masters = Masters(mesh, precision, cut=stage > 0, on_host=offload.optimizer, file=recipe.state_file)
    fill = filler(parts, recipe, mesh, precision.compute, masters.keep)
    for part in parts:
        fill(part)
    if stage:
        return ShardedOptimizer(parts, mesh, precision, stage, recipe.overlap, masters)
    return DDP(parameters(parts, mesh), mesh, precision, recipe.overlap, masters)


def filler(
    parts: Sequence[nn.Module], recipe: Recipe, mesh: Mesh, dtype: torch.dtype, keep: Keep
) -> Callable[[nn.Module], None]:
    """A function that allocates this rank's part of a module's parameters on its device, in `dtype`.

    `keep` is called with each parameter.
    """
    if not recipe.on_meta:
        for parameter in parameters(parts, mesh):
            keep(parameter, parameter.local)
        for part in parts:
            move(part, mesh.device, dtype, recipe.precision.compute)
        return lambda _: None
    known = {p.value: p for p in parameters(parts, mesh)}
    modules = [module for part in parts for module in part.modules()]
    left = Counter(value for owner in modules for _, value in own_parameters(owner))  # places that are not filled yet
    filled: dict[nn.Parameter, nn.Parameter] = {}  # only until the last place has it: ZeRO-3 shards it at once

    def fill(module: nn.Module) -> None:
        for owner in module.modules():
            for key, value in own_parameters(owner):
                if value not in known:
                    continue
                if value not in filled:
                    filled[value] = _allocated(known[value], mesh.device, dtype, keep)
                setattr(owner, key, filled[value])
                left[value] -= 1
                if not left[value]:
                    del filled[value]

    return fill


def own_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Those of the module itself, by each of their names."""
    return list(module.named_parameters(recurse=False, remove_duplicate=False))


def _allocated(parameter: Parameter, device: torch.device, dtype: torch.dtype, keep: Keep) -> nn.Parameter:
    """This rank's part of it, of NaN: a value that is used before it is set shows at once."""
    old = parameter.value
    _, size = slice_of(parameter.shape, parameter.cuts)
    local = torch.full(size, math.nan, dtype=dtype, device=device)
    keep(parameter, local)
    if isinstance(old, DTensor):
        local = DTensor.from_local(local, old.device_mesh, old.placements, shape=old.shape, stride=old.stride())
    return nn.Parameter(local)
