"""What can be refused before anything is stored: layout, files, checkpoint, and more ranks than there can ever be."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from ..strategies.layout import Batch, ModelFacts, Refusal
from ..workers import elastic
from ..workers.checkpoint.address import is_bucket, refuse_unreachable
from ..workers.checkpoint.errors import CheckpointError
from ..workers.checkpoint.shelf import newest
from ..workers.checkpoint.storage import folder_at
from ..workers.data.corpus import sources
from ..workers.data.errors import DataError
from ..workers.spec import TrainSpec
from . import queue
from .errors import (
    EmptyCorpus,
    InvalidLayout,
    InvalidSpec,
    MissingFile,
    ShardyardError,
    TooManyRanks,
    UnknownCheckpoint,
)
from .settings import Settings
from .spec import JobSpec

_DATA_ERRORS: dict[str, type[ShardyardError]] = {
    "missing_file": MissingFile,
    "no_match": MissingFile,
    "not_a_file": MissingFile,
    "unreadable_file": MissingFile,
    "empty_corpus": EmptyCorpus,
    "corpus_too_short": EmptyCorpus,
}


@dataclass(frozen=True)
class Checked:
    """The batch maths of a spec that can run and, of an elastic job, the forms that it may take.

    `vocab`: the tokenizer's size, None where it cannot be seen from here; `seen`: the model's own files can.
    """

    batch: Batch
    forms: tuple[elastic.Form, ...]
    vocab: int | None
    seen: bool


async def check(spec: JobSpec, settings: Settings) -> Checked:
    """What follows from a spec that can run. Raises InvalidLayout, InvalidSpec, MissingFile, EmptyCorpus."""
    if spec.train.precision == "fp8" and spec.device == "cpu":
        raise InvalidSpec(
            "fp8 needs GPUs, and this job asks for CPUs.",
            field="resources.device",
            remedy="Set resources.device to cuda, or train.precision to bf16.",
        )
    check_storage(spec.train)
    vocab = 256 if spec.train.data.tokenizer == "bytes" else None
    if settings.local_files:
        vocab = await asyncio.to_thread(_check_files, spec.train)
    return check_layout(spec.train, vocab, settings.local_files)


def check_layout(train: TrainSpec, vocab: int | None, local_files: bool = True) -> Checked:
    """`vocab` None: the tokenizer cannot be seen from here, so what depends on its size is left to the trainers.

    So is all that a model's own files say where there are no `local_files`.
    """
    try:
        unseen = train.model.from_ is not None and not local_files
        facts = ModelFacts(None, None, None, None, None) if unseen else train.facts(vocab or 256)
        if vocab is None and train.model.vocab is None:
            facts = replace(facts, vocab=None)
        return Checked(train.check_facts(facts), elastic.forms(train, facts), vocab, not unseen)
    except Refusal as refusal:
        raise InvalidLayout(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None


def _check_files(train: TrainSpec) -> int:
    """Look at every file that the spec names; returns the vocabulary's size."""
    code = train.model.code
    if code is not None and not _exists(code):
        raise MissingFile(f"{code} does not exist.", field="train.model.code", remedy="Name the folder of the module.")
    model = train.model.from_
    if model is not None and not _exists(model):
        remedy = "Name the folder of a Hugging Face model."
        raise MissingFile(f"{model} does not exist.", field="train.model.from", remedy=remedy)
    try:
        if train.data.source == "text":
            sources(train.data)
        if train.data.tokenizer == "bytes":
            return 256
        from ..workers.data.tokenizer import vocab_size  # loads the tokenizers library

        return vocab_size(train.data)
    except DataError as error:
        kind = _DATA_ERRORS.get(error.code, InvalidSpec)
        raise kind(error.message, field=f"train.{error.field}", remedy=error.remedy) from None
    except RuntimeError as error:  # ~somebody, whom this machine does not know
        raise MissingFile(f"{error}", field="train.data", remedy="Write the path without ~.") from None


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
        fits = queue.impossible(replace(waiting, spares=0), cluster) is None
        field, smaller = ("policy.spares", "fewer spares") if fits else ("train.layout", "smaller degrees of layout")
        remedy = f"Use {smaller}, add nodes, or say in SHARDYARD_CAPACITY what the cluster is to have."
        raise TooManyRanks(never, field=field, remedy=remedy)


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
        except Refusal as refusal:
            raise InvalidSpec(refusal.message, field=f"train.{field}", remedy=refusal.remedy) from None


def _unknown(message: str, remedy: str) -> UnknownCheckpoint:
    return UnknownCheckpoint(message, field="train.resume_from", remedy=remedy)
