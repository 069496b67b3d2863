"""What can be refused before anything is stored: layout, files, checkpoint, and more ranks than there can ever be."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..strategies.layout import Batch, ModelFacts, Refusal
from ..workers import elastic, regular_files
from ..workers.checkpoint.address import is_bucket, refuse_unreachable
from ..workers.checkpoint.errors import CheckpointError
from ..workers.checkpoint.shelf import newest
from ..workers.checkpoint.storage import folder_at
from ..workers.data.corpus import sources
from ..workers.data.errors import DataError
from ..workers.models.presets import Architecture
from ..workers.spec import TrainSpec
from . import queue
from .errors import InvalidLayout, InvalidSpec, MissingFile, NotAFile, TooManyRanks, UnknownCheckpoint
from .settings import Settings
from .spec import JobSpec
from .spec_files import SpecFiles, refusal, unfit


@dataclass(frozen=True)
class Checked:
    """The batch maths of a spec that can run and, of an elastic job, the forms that it may take.

    `architecture`: None where it cannot be known from here, of a module of the user's own or files that only the trainers see.
    """

    batch: Batch
    forms: tuple[elastic.Form, ...]
    architecture: Architecture | None


async def check(spec: JobSpec, settings: Settings, files: SpecFiles) -> Checked:
    """What follows from a spec that can run. Raises InvalidLayout, InvalidSpec, and of its files what `SpecFiles` does."""
    if spec.train.precision == "fp8" and spec.device == "cpu":
        raise InvalidSpec(
            "fp8 needs GPUs, and this job asks for CPUs.",
            field="resources.device",
            remedy="Set resources.device to cuda, or train.precision to bf16.",
        )
    check_storage(spec.train)
    if settings.local_files:
        return await files.look(partial(_check_files, spec.train))
    vocab = 256 if spec.train.data.tokenizer == "bytes" else None
    return check_layout(spec.train, vocab, unseen=spec.train.model.from_ is not None)


def check_layout(train: TrainSpec, vocab: int | None, unseen: bool = False) -> Checked:
    """`vocab` None: the tokenizer cannot be seen from here. `unseen`: nor the model's numbers, such as those in files of its own."""
    try:
        facts = ModelFacts(None, None, None, None) if unseen else train.facts(vocab or 256)
        known = train.model.vocab or vocab
        architecture = None if unseen or known is None else train.architecture(known)
        return Checked(train.check_facts(facts), elastic.forms(train, facts), architecture)
    except Refusal as error:
        raise InvalidLayout(error.message, field=f"train.{error.field}", remedy=error.remedy) from None


def _check_files(train: TrainSpec, until: float) -> Checked:
    """Look at every file that the spec names."""
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
        if train.data.source == "text":
            sources(train.data, until)
        return check_layout(train, _vocab(train))
    except DataError as error:
        raise refusal(error) from None
    except RuntimeError as error:  # ~somebody, whom this machine does not know
        raise MissingFile(f"{error}", field="train.data", remedy="Write the path without ~.") from None


def _vocab(train: TrainSpec) -> int:
    if train.data.tokenizer == "bytes":
        return 256
    from ..workers.data.tokenizer import vocab_size  # loads the tokenizers library

    return vocab_size(train.data)


def _check_config(path: Path) -> None:
    """Refuse what is no file, by its own code; whether it is there and can be read is said with what it holds."""
    try:
        regular_files.opened(path).close()
    except regular_files.UnfitFile as error:
        raise unfit(error, "train.model.from") from None
    except OSError:
        return


def _exists(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, RuntimeError):  # a name too long; ~somebody, whom this machine does not know
        return False


def check_ranks(spec: JobSpec, checked: Checked, cluster: queue.Inventory) -> None:
    """Raises TooManyRanks when the job can never fit, in its smallest form; while nothing is known of the cluster, anything may."""
    layout, spares = spec.train.layout, spec.policy.spares
    least = min((form.world_size for form in checked.forms), default=layout.world_size)
    waiting = queue.Waiting("", least, layout.tensor, spec.device, spares)
    never = queue.impossible(waiting, cluster)
    if never is not None:
        if spec.device == "cuda" and queue.impossible(replace(waiting, wanted="cpu"), cluster) is None:
            raise _no_gpus(spec, never)
        fits = queue.impossible(replace(waiting, spares=0), cluster) is None
        field, smaller = ("policy.spares", "fewer spares") if fits else ("train.layout", "smaller degrees of layout")
        remedy = f"Use {smaller}, add nodes, or say in SHARDYARD_CAPACITY what the cluster is to have."
        raise TooManyRanks(never, field=field, remedy=remedy)


def _no_gpus(spec: JobSpec, never: str) -> TooManyRanks:
    """Of a job that asks for GPUs and could run on CPUs."""
    more = "Or add nodes with GPUs, or say in SHARDYARD_CAPACITY which the cluster is to have."
    if spec.train.precision == "fp8":
        return TooManyRanks(never, field="train.precision", remedy=f"Use bf16: fp8 needs GPUs. {more}")
    auto = "Use auto: then it runs on CPUs as long as there are too few GPUs."
    return TooManyRanks(never, field="resources.device", remedy=f"{auto} {more}")


def newest_checkpoint(where: str) -> str | None:
    """The newest complete checkpoint below a job's folder, or the folder itself when it is one. Raises CheckpointError, Refusal."""
    try:
        found = newest(folder_at(where if is_bucket(where) else str(Path(where).expanduser().absolute())))
    except CheckpointError:
        raise
    except (OSError, RuntimeError):  # a name too long, no permission; ~somebody, whom this machine does not know
        return None
    return None if found is None else found.where


def resume_from_job(job_id: str, told: str | None, root: str, settings: Settings) -> str:
    """The newest checkpoint of another job below `root`; `told` is the last that its gang told of. Raises UnknownCheckpoint."""
    if settings.local_files and not is_bucket(root):
        told = newest_checkpoint(root)
    if told is None:
        raise _unknown(
            f"{job_id} has no complete checkpoint.", "Set checkpoint.every in that job, or wait for its end."
        )
    return told


def resume_from_path(path: str, settings: Settings) -> str:
    """A checkpoint's folder, or one that holds checkpoints. Raises UnknownCheckpoint."""
    if is_bucket(path):
        return path  # asked by the trainers alone: they have the credentials
    if not settings.local_files:
        if Path(path).is_absolute():
            return path  # seen by the trainers only
        raise _unknown(
            f"{path!r} is neither a job nor an absolute path.", "Name a job by id or name, or an absolute path."
        )
    found = newest_checkpoint(path)
    if found is None:
        raise _unknown(
            f"{path!r} is neither a job nor a complete checkpoint's folder.", "See `shardyard list` for jobs."
        )
    return found


def check_storage(train: TrainSpec) -> None:
    """Raises InvalidSpec where checkpoints could not be written or read for want of a library."""
    for field, where in (("checkpoint.uri", train.checkpoint.uri), ("resume_from", train.resume_from)):
        try:
            refuse_unreachable(where or "")
        except Refusal as error:
            raise InvalidSpec(error.message, field=f"train.{field}", remedy=error.remedy) from None


def _unknown(message: str, remedy: str) -> UnknownCheckpoint:
    return UnknownCheckpoint(message, field="train.resume_from", remedy=remedy)
