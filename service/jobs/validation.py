"""Checks before anything is stored: layout, files, checkpoint, and whether the ranks can ever fit."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from ...strategies.batch import Batch
from ...strategies.layout import Layout, ModelFacts, Refusal
from ...strategies.memory_options import Offload, Recompute
from ...workers import elastic_layouts, regular_files
from ...workers.data import split_lengths
from ...workers.data.corpus import sources
from ...workers.data.errors import DataError
from ...workers.data.tokenizer import document_end, load_tokenizer
from ...workers.messages.gang_spec import ANY_MODELS
from ...workers.models import own_module
from ...workers.models.presets import Architecture
from ...workers.spec import DataSpec, TrainSpec, facts_of
from ...workers.storage.uri import is_bucket, refuse_unreachable
from ..errors import InvalidLayout, InvalidSpec, MissingFile, NotAFile, TooManyRanks
from ..policies import queue
from ..settings import Settings
from ..spec import AnySpec, CommandSpec, JobSpec
from ..spec_files import SpecFiles, refusal, unfit
from . import queued_job, rank_environment

#: Kind of spec → the field that sets its number of ranks, and what to change in it.
_SMALLER: Final[dict[type, tuple[str, str]]] = {
    JobSpec: ("train.layout", "smaller degrees of layout"),
    CommandSpec: ("ranks", "fewer ranks"),
}
#: A lower bound of the bytes of Python's own sources.
_STDLIB_BYTES: Final = 4_000_000


@dataclass(frozen=True)
class Checked:
    """The batch size calculation of a spec that can run and, for an elastic job, its layouts.

    `architecture`: None where it cannot be known from here, of a module of the user's own or files that only the trainers see.
    """

    batch: Batch
    elastic_layouts: tuple[elastic_layouts.ElasticLayout, ...]
    architecture: Architecture | None

    def least_ranks(self, spec: JobSpec) -> int:
        """The number of ranks of the smallest layout."""
        return min((layout.world_size for layout in self.elastic_layouts), default=spec.world_size)


async def check(spec: JobSpec, settings: Settings, files: SpecFiles) -> Checked:
    """The checked batch and layouts of a spec. Raises InvalidLayout, InvalidSpec, and for its files what `SpecFiles` raises.

    If the layout has yet to be chosen, the spec is checked on one rank.
    """
    _check_device(spec)
    rank_environment.check(spec)
    train = on_one_rank(spec.train) if spec.train.undecided else spec.train
    check_storage(train)
    if settings.local_files:
        return await files.look(partial(_check_files, train))
    vocab = 256 if train.data.tokenizer == "bytes" else None
    return check_layout(train, vocab, unseen=train.model.from_ is not None)


def _check_device(spec: JobSpec) -> None:
    """Raise InvalidSpec if parameter servers, or fp8, do not run on the devices that the job asks for."""
    wanted, servers = spec.resources, bool(spec.train.layout.servers)
    if servers and spec.device == "cuda":
        to_cpu = "Leave resources.gpu out" if wanted.gpu is not None else "Set resources.device to cpu"
        if wanted.gpu is not None and wanted.device == "cuda":
            to_cpu += " and set resources.device to cpu"
        raise InvalidSpec(
            "parameter servers run on CPUs, and this job asks for GPUs.",
            field="resources.device" if wanted.gpu is None else "resources.gpu",
            remedy=f"{to_cpu}, or leave train.layout.parameter_server out.",
        )
    if spec.train.precision.compute != "fp8":
        return
    if servers:
        raise InvalidSpec(
            "fp8 needs GPUs, and parameter servers run on CPUs.",
            field="train.precision",
            remedy="Use bf16, or leave train.layout.parameter_server out.",
        )
    if spec.device == "cpu":
        raise InvalidSpec(
            "fp8 needs GPUs, and this job asks for CPUs.",
            field="resources.device",
            remedy="Set resources.device to cuda, or train.precision to bf16.",
        )


def on_one_rank(train: TrainSpec) -> TrainSpec:
    """The spec without what the layout advisor chooses."""
    return train.model_copy(update={"layout": Layout(), "recompute": Recompute(), "offload": Offload()})


def on_its_layout(train: TrainSpec, checked: Checked) -> Checked:
    """What is `checked` of a spec, on the layout that was chosen afterwards. The model's numbers are known then."""
    assert checked.architecture is not None
    return Checked(_batch(train, facts_of(checked.architecture)), (), checked.architecture)


def check_layout(train: TrainSpec, vocab: int | None, unseen: bool = False) -> Checked:
    """`vocab` is None if the server cannot read the tokenizer. `unseen`: nor can it read the model's sizes."""
    if vocab is not None:
        _check_vocab(train, vocab)
    try:
        facts = ModelFacts(None, None, None, None) if unseen else train.facts(vocab or 256)
        known = train.model.vocab or vocab
        architecture = None if unseen or known is None else train.architecture(known)
        return Checked(_batch(train, facts), elastic_layouts.elastic_layouts(train, facts), architecture)
    except Refusal as error:
        raise InvalidLayout(error.message, field=f"train.{error.field}", remedy=error.remedy) from None


def _batch(train: TrainSpec, facts: ModelFacts) -> Batch:
    """The batch size calculation. Raises Refusal."""
    train.check_compiled(facts)
    return train.check_facts(facts)


def _check_vocab(train: TrainSpec, tokens: int) -> None:
    try:
        train.model.check_vocab(tokens)
    except Refusal as error:
        raise InvalidSpec(error.message, field=f"train.{error.field}", remedy=error.remedy) from None


def check_paths(train: TrainSpec) -> None:
    """Raise InvalidSpec for a relative path, for which the server has no working folder, and for an address where files are read."""
    data, model = train.data, train.model
    tokenizer = None if data.tokenizer == "bytes" else data.tokenizer
    named = [("model.code", model.code), ("model.from", model.from_), ("data.tokenizer", tokenizer)]
    for field, path in (
        *named,
        *(("data.files", file) for file in data.files),
        ("checkpoint.uri", train.checkpoint.uri),
    ):
        stored = field == "checkpoint.uri"
        if path is None or path.startswith("/" if stored else ("/", "~")) or (stored and is_bucket(path)):
            continue
        scheme, separator, _ = path.partition("://")
        if separator:  # what follows may hold a password
            raise InvalidSpec(
                f"{scheme[:200]}://… is an address, and a file system is read here.",
                field=f"train.{field}",
                remedy="Copy it to a folder that all nodes see, and write the path of that.",
            )
        raise InvalidSpec(
            f"{path[:200]!r} is a relative path, and the server has no folder to resolve it against.",
            field=f"train.{field}",
            remedy="Write an absolute path. The command line resolves relative paths in a spec file against the file's folder.",
        )


def _check_files(train: TrainSpec, until: float) -> Checked:
    """Check every file that the spec names."""
    check_writable(train.checkpoint.uri, "train.checkpoint.uri")
    code, model = train.model.code, train.model.from_
    if code is not None and not _exists(code):
        raise MissingFile(f"{code} does not exist.", field="train.model.code", remedy="Name the folder of the module.")
    if code is not None and not Path(code).expanduser().is_dir():
        remedy = f"Name the folder that holds the module: {Path(code).parent}"
        raise NotAFile(f"{code} is not a folder.", field="train.model.code", remedy=remedy)
    if model is not None and not _exists(model):
        remedy = "Name the folder of a Hugging Face model."
        raise MissingFile(f"{model} does not exist.", field="train.model.from", remedy=remedy)
    try:
        if model is not None:
            _check_config(Path(model).expanduser() / "config.json")
        if train.model.import_ is not None:
            own_module.check_source(train.model)
        if train.data.is_own:
            source = own_module.OwnSource(train.data.source, train.model.code, train.data.options)
            own_module.check_source(source, own_module.SOURCE)
        tokenizer = load_tokenizer(train.data)
        document_end(train.data, tokenizer)
        files = sources(train.data, until) if _is_measured(train.data) else []
        checked = check_layout(train, tokenizer.vocab)
        if files:
            split_lengths.measure(files, tokenizer, train.data)
        return checked
    except Refusal as error:
        raise InvalidSpec(error.message, field=f"train.{error.field}", remedy=error.remedy) from None
    except DataError as error:
        raise refusal(error) from None
    except RuntimeError as error:  # an unknown ~user
        raise MissingFile(f"{error}", field="train.data", remedy="Write the path without ~.") from None


def _is_measured(data: DataSpec) -> bool:
    """Python's own sources are long enough for all but the longest sequences."""
    if data.is_own:  # the source is not run here
        return False
    needed = data.seq_len / min(data.validation, 1 - data.validation)
    return data.source == "text" or needed > _STDLIB_BYTES


def check_writable(where: str | None, field: str) -> None:
    """Raise InvalidSpec if no file can be created in the folder, or in the parent where it would be created."""
    if where is None or is_bucket(where):
        return
    folder = Path(where)
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            return
    except OSError as error:
        raise InvalidSpec(
            f"{where} cannot be written: {error.strerror}.",
            field=field,
            remedy="Name a folder in which jobs may write, or leave it out to use the server's folder.",
        ) from None


def _check_config(path: Path) -> None:
    """Refuse what is not a file, with its own code. Whether it exists and can be read is checked with its content."""
    try:
        regular_files.opened(path).close()
    except regular_files.UnfitFile as error:
        raise unfit(error, "train.model.from") from None
    except OSError:
        return


def _exists(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, RuntimeError):  # a name too long; an unknown ~user
        return False


def check_ranks(spec: AnySpec, least: int, clusters: Sequence[queue.Inventory]) -> None:
    """Raise TooManyRanks if `least` ranks of the job can never fit on any cluster. An unknown cluster fits every job."""
    waiting = replace(queued_job.waiting(spec), world_size=least)
    refusals = [queue.impossible(waiting, cluster) for cluster in clusters]
    if (never := refusals[0]) is not None and None not in refusals:
        _refuse_together(waiting, clusters, never)
        on_cpus = replace(waiting, wanted="cpu")
        if spec.device == "cuda" and any(queue.impossible(on_cpus, cluster) is None for cluster in clusters):
            raise _no_gpus(spec, never)
        fits = any(queue.impossible(replace(waiting, spares=0), cluster) is None for cluster in clusters)
        field, smaller = ("policy.spares", "fewer spares") if fits else _SMALLER[type(spec)]
        remedy = f"Use {smaller}, add nodes, or set SHARDYARD_CAPACITY to what the cluster will have."
        raise TooManyRanks(never, field=field, remedy=remedy)


def _refuse_together(waiting: queue.Waiting, clusters: Sequence[queue.Inventory], never: str) -> None:
    """Raise TooManyRanks if the job fits on the cluster's devices, but not on those that it may use together."""
    more = "Or add such nodes: `shardyard nodes` lists the labels of those that are there."
    anywhere = replace(waiting, image=None)
    if waiting.image and any(queue.impossible(anywhere, cluster) is None for cluster in clusters):
        raise TooManyRanks(
            never, field="env.image", remedy=f"Name another image, or leave it out, or use fewer ranks. {more}"
        )
    fewer = replace(waiting, cpus=0.0)
    if waiting.cpus and any(queue.impossible(fewer, cluster) is None for cluster in clusters):
        remedy = "Reserve fewer cores for each GPU, or none, or use fewer ranks."
        raise TooManyRanks(never, field="resources.cpus_per_gpu", remedy=remedy)
    apart = replace(waiting, within=None)
    if waiting.within and any(queue.impossible(apart, cluster) is None for cluster in clusters):
        remedy = f"Leave resources.within out, or use fewer ranks. {more}"
        raise TooManyRanks(never, field="resources.within", remedy=remedy)
    mixed = replace(apart, wanted="cuda", gpu=ANY_MODELS)
    if waiting.wanted != "cpu" and any(queue.impossible(mixed, cluster) is None for cluster in clusters):
        named = "Name another model" if waiting.model else "Use fewer ranks"
        remedy = f"{named}, or set resources.gpu to {ANY_MODELS} to use GPUs of several models. {more}"
        raise TooManyRanks(never, field="resources.gpu", remedy=remedy)


def _no_gpus(spec: AnySpec, never: str) -> TooManyRanks:
    """The error for a job that asks for GPUs and could run on CPUs."""
    more = "Or add nodes with GPUs, or set SHARDYARD_CAPACITY to what the cluster will have."
    if isinstance(spec, JobSpec) and spec.train.precision.compute == "fp8":
        return TooManyRanks(never, field="train.precision", remedy=f"Use bf16: fp8 needs GPUs. {more}")
    auto = "Use auto: then the job runs on CPUs while there are too few GPUs."
    return TooManyRanks(never, field="resources.device", remedy=f"{auto} {more}")


def check_storage(train: TrainSpec) -> None:
    """Raise InvalidSpec if a library for writing or reading the checkpoints is missing."""
    for field, where in (("checkpoint.uri", train.checkpoint.uri), ("resume_from", train.resume_from)):
        try:
            refuse_unreachable(where or "")
        except Refusal as error:
            raise InvalidSpec(error.message, field=f"train.{field}", remedy=error.remedy) from None
