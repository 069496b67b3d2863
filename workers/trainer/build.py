"""Builds everything that a training loop holds, from a run and a mesh."""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import nn

from ...strategies.activation_memory.state_file import StateFile
from ...strategies.batch import Batch
from ...strategies.cost.stage_balance import ModuleCosts
from ...strategies.layout import Refusal
from ...strategies.loss import TokenLoss
from ...strategies.mesh import Mesh
from ...strategies.parallelize import Parallel, Recipe, parallelize
from ...strategies.pipeline_parallel.stage_shapes import stage_shapes
from ...strategies.precision import PRECISIONS, Precision, loss_scale_for
from ...strategies.sample_loss import SampleLoss
from ...strategies.telemetry.current import log
from ..checkpoint.restore import training_before
from ..data.dataset import Tokens, open_tokens
from ..data.own_source import OwnSamples, open_samples
from ..model_spec import ModelSpec
from ..models.flops import module_flops
from ..models.own_factory import made
from ..models.presets import Architecture
from ..models.registry import make
from ..ready_ranks import wait_for_all
from ..spec import Run, TrainSpec
from ..storage.open_folder import folder_at
from .cpu_share import use_all_own_cores
from .device_facts import decided
from .first_values import FirstValues
from .optimizer import make_optimizer
from .stage_profile import Profiler, format_costs, format_replicas, profiler


@dataclass(frozen=True)
class TrainerParts:
    """One rank's share of a training run, as the loop needs it. In `run` every option is decided."""

    run: Run
    mesh: Mesh
    batch: Batch
    tokens: Tokens | OwnSamples
    parallel: Parallel
    optimizer: torch.optim.Optimizer
    loss: TokenLoss
    parameters: int  # of the whole model
    architecture: Architecture | None  # None: a module of the user's own
    first_values: FirstValues | None  # to be set if no state is restored; None: the parameters have them
    choices: tuple[str, ...] = ()  # why options that are decided here have their values
    profile: ModuleCosts | None = None  # the measured times by which the pipeline is split; None: FLOPs decide
    state_file: StateFile | None = None  # of the state that is on a disk

    @property
    def spec(self) -> TrainSpec:
        return self.run.train

    @property
    def counts_loss(self) -> bool:
        """Whether sums over all ranks include this rank's share of the loss: only that of one tensor rank of the last stage.

        On a grid, or several, it is that of the first rank of each row: rows have different sequences.
        """
        return self.parallel.runner.last and self.mesh.index(self.mesh.tensor_axes[-1]) == 0


def build(run: Run, mesh: Mesh) -> TrainerParts:
    """The parts with the values of step 0. Raises what `allocate` raises, and `Refusal` for a published model's files."""
    parts = allocate(run, mesh)
    if parts.first_values is not None:
        parts.first_values.set(parts.parallel.data)
    return replace(parts, first_values=None)


def allocate(
    run: Run, mesh: Mesh, profile: ModuleCosts | None = None, beat: Callable[[], None] = lambda: None
) -> TrainerParts:
    """Compose data, model, layout and optimizer; parameters have no values yet.

    `profile`: by which a pipeline that is split by one is split; None: it is measured now. `beat` is called while the tokens are made,
    and while other ranks make theirs. Raises `Refusal`, `DataError` and `StateDiskError` with a remedy.
    """
    spec = run.train
    tokens = _opened(run, beat)
    wait_for_all("data", beat)
    _check_tokens(tokens, spec.model)
    if spec.offload.optimizer or spec.offload.parameters:
        use_all_own_cores(mesh.device)
    found = decided(spec, spec.facts(tokens.vocab), mesh.device)
    how = profiler(found.train, mesh, tokens, profile)
    file = StateFile(run.scratch or run.cache / "scratch") if spec.offload.to == "disk" else None
    parts = compose(run.model_copy(update={"train": found.train}), mesh, tokens, profile=how, file=file)
    times = (
        *format_costs(parts.profile),
        *format_replicas(parts.profile, found.train.layout, parts.batch.microbatches),
    )
    return replace(parts, choices=(*found.reasons, *times))


def _opened(run: Run, beat: Callable[[], None]) -> Tokens | OwnSamples:
    spec = run.train
    if spec.data.is_own:
        beat()  # the user's code gets a hang's whole limit
        return open_samples(spec)

    def trained() -> str | None:
        resume = None if run.resume is None or spec.resume_data == "restart" else folder_at(run.resume)
        before = training_before(folder_at(run.checkpoints), resume, beat)
        return (before.get("data") or {}).get("tokenizer")

    return open_tokens(spec.data, run.cache, seed=spec.seed, global_batch=spec.global_batch, beat=beat, trained=trained)


def compose(
    run: Run,
    mesh: Mesh,
    tokens: Tokens | OwnSamples,
    blocks: int | None = None,
    profile: Profiler | None = None,
    file: StateFile | None = None,
) -> TrainerParts:
    """The parts for `tokens`; parameters have no values yet, except those of a module of the user's own. No option of `run` is `auto`.

    `blocks`: the number of blocks of each stage in the place of the model's own, for a model that the spec describes by its sizes.
    `profile` returns the times by which a pipeline is split; None: FLOPs decide, also where the layout asks for a profile.
    `file` is for the state that the spec has on a disk. Without one all state is in memory.
    """
    if blocks is not None:
        run = run.model_copy(update={"train": _evenly_split(run.train)})
    spec = run.train
    batch = spec.check(tokens.vocab)
    precision = replace(PRECISIONS[spec.precision.compute], wide_gradients=spec.precision.gradients == "fp32")
    tokens_per_step = spec.global_batch * spec.data.tokens_per_sample
    kind = SampleLoss if spec.data.is_own else TokenLoss
    loss = kind(
        tokens_per_step, loss_scale_for(precision, tokens_per_step), spec.loss.label_smoothing, spec.loss.z_loss
    )
    architecture = spec.architecture(tokens.vocab)
    first_values = None
    if architecture is None:
        torch.manual_seed(spec.seed)
        model = _imported(spec.model)
        if spec.data.is_packed:
            _check_documents(model)
        several = spec.layout.stages > 1  # each stage cuts a copy of its own
        whole = (lambda: copy.deepcopy(model)) if several else (lambda: model)
        recipe = Recipe(whole, False, batch, precision, spec.memory_options, loss, spec.overlap, loss.share)
    else:
        costs = module_flops(architecture, spec.data.seq_len)
        if blocks is not None:
            architecture = architecture.model_copy(update={"layers": blocks * spec.layout.stages})
            costs = ModuleCosts(0, (1,) * architecture.layers, 0)
        model = _on_meta(architecture)
        recipe = _recipe(spec, architecture, batch, precision, loss, costs)
        first_values = FirstValues(spec.model, architecture, spec.seed, tuple(dict(model.named_parameters())))
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    times = None if profile is None else profile(recipe)
    parallel = parallelize(replace(recipe, costs=recipe.costs if times is None else times, state_file=file), mesh)
    on_host = 1.0 if spec.offload.parameters and file is not None else spec.offload.optimizer
    optimizer = make_optimizer(parallel.data.all_shards, spec.optimizer, on_host, file)
    found = TrainerParts(run, mesh, batch, tokens, parallel, optimizer, loss, count, architecture, first_values)
    return replace(found, profile=times, state_file=file)


def _evenly_split(train: TrainSpec) -> TrainSpec:
    """The spec, without numbers of blocks that are not those of its stages."""
    return train.model_copy(update={"layout": train.layout.with_(pipeline_blocks=None)})


def _recipe(
    spec: TrainSpec, architecture: Architecture, batch: Batch, precision: Precision, loss: TokenLoss, costs: ModuleCosts
) -> Recipe:
    """The recipe of a model that the spec describes by its sizes."""
    layout, seq_len = spec.layout, spec.data.seq_len
    chunk = spec.loss_chunk(batch, architecture.vocab)
    vocab = None if chunk else architecture.vocab
    return Recipe(
        lambda: _on_meta(architecture),
        True,
        batch,
        precision,
        spec.memory_options,
        loss,
        spec.overlap,
        loss.share,
        costs,
        stage_shapes(layout, batch, seq_len, architecture.dim, vocab, precision.compute),
        chunk,
        ends_apart=spec.ends_apart,
        tied_ends=architecture.tied,
    )


def _check_tokens(tokens: Tokens | OwnSamples, model: ModelSpec) -> None:
    """Check that the model's vocabulary has every token, and that every rank has the same tokens of the same text. Raises `Refusal`."""
    model.check_vocab(tokens.vocab)
    own = (tokens.order, tokens.sha256)
    everyone = [own] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    if different := _unlike_first([order for order, _ in everyone]):
        raise Refusal(
            "data.source",
            f"ranks {different} read other data than rank 0.",
            "Give every node the same files (and, for python-stdlib, the same Python).",
        )
    if different := _unlike_first(everyone):
        raise Refusal(
            "data.tokenizer",
            f"ranks {different} have other tokens of the same text than rank 0.",
            f"Give every node the same version of tokenizers, and delete {tokens.order.corpus}.json in the token cache of each: "
            "then they make the tokens again.",
        )


def _unlike_first(values: Sequence[object]) -> list[int]:
    """The ranks whose value differs from that of rank 0."""
    return [rank for rank, value in enumerate(values) if value != values[0]]


def _on_meta(architecture: Architecture) -> nn.Module:
    with torch.device("meta"):
        return make(architecture)


def _imported(spec: ModelSpec) -> nn.Module:
    model = made(spec)
    if not isinstance(model, nn.Module):
        raise Refusal("model.import", f"{spec.import_} returned a {type(model).__name__}.", "Return an nn.Module.")
    _check_statistics(model)
    _check_complex(model)
    for module in model.modules():
        if not hasattr(module, "log"):
            module.__dict__["log"] = log
    return model


def _check_statistics(model: nn.Module) -> None:
    """Raise `Refusal` for running statistics: each replica would have its own, and checkpoints have parameters alone."""
    for name, module in model.named_modules():
        if getattr(module, "num_batches_tracked", None) is not None:
            raise Refusal(
                "model.import",
                f"{name or 'the module'} is a {type(module).__name__} with running statistics, which no checkpoint would have.",
                "Set track_running_stats to False, or use nn.GroupNorm or nn.LayerNorm.",
            )


def _check_complex(model: nn.Module) -> None:
    """Raise `Refusal` for complex parameters: the dtypes in which a model and its optimizer compute are real."""
    for name, value in model.named_parameters():
        if value.is_complex():
            raise Refusal(
                "model.import",
                f"{name} is a parameter of {value.dtype}, and would lose its imaginary part in the dtype of computation.",
                "Make the parameter of torch.view_as_real of it, and let forward use torch.view_as_complex(parameter.float()); "
                "what is not trained may be a buffer.",
            )


def _check_documents(model: nn.Module) -> None:
    """Raise `Refusal` if a module of the user's own does not take where packed documents start."""
    if "starts" not in inspect.signature(model.forward).parameters:
        raise Refusal(
            "data.documents",
            f"forward of {type(model).__name__} takes no argument `starts`, so its attention would cross the ends of packed documents.",
            "Let forward take `starts` and keep attention within documents, or set data.documents to joined.",
        )
