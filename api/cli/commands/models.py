"""`shardyard export`: writes a checkpoint as a Hugging Face folder, here or on the cluster."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ....service.errors import MissingFile, UnknownCheckpoint
from ....service.jobs.resume import newest_checkpoint
from ....service.schemas.checkpoint import Checkpoint
from ....service.schemas.model import ModelVersion, Reference
from ....service.schemas.operation import Exported
from ....service.schemas.problem import FieldError
from ....strategies.layout import Refusal
from ....workers.checkpoint.errors import CheckpointError
from ....workers.storage.errors import StorageError
from ....workers.storage.open_folder import folder_at
from ....workers.storage.uri import address, is_bucket
from ...client import Client
from ...client.transport import ApiError
from ...given_path import given_path
from ..options import Url
from ..terminal.screen import Screen, number, size


def export(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="Checkpoint: its folder or s3:// URI, a folder of checkpoints (the newest), a job's as JOB or JOB@STEP, or a "
            "version as models/NAME@ALIAS.",
        ),
    ],
    out: Annotated[Path | None, typer.Argument(metavar="OUT", help="Folder to write; it must be new or empty.")] = None,
    dtype: Annotated[
        Literal["fp32", "bf16", "fp16", "fp64"], typer.Option(help="Dtype of the written weights.")
    ] = "fp32",
    shard_size: Annotated[int, typer.Option(min=1, metavar="MIB", help="Maximum MiB per file of weights.")] = 4768,
    on_cluster: Annotated[
        bool, typer.Option("--on-cluster", help="Export on the cluster, beside the job's checkpoints; without OUT.")
    ] = False,
    url: Url = None,
) -> None:
    """Write a checkpoint of any layout as a Hugging Face folder for transformers."""
    if on_cluster is (out is not None):
        message = "The cluster writes beside the job's checkpoints." if on_cluster else "A folder to write is missing."
        remedy = "Leave out OUT." if on_cluster else "Name a new one, or let the cluster write with --on-cluster."
        raise MissingFile(message, field="OUT", remedy=remedy)
    if out is None:
        with Client(url) as client:
            _print_written(checkpoint, _on_cluster(client, checkpoint, dtype))
    else:
        out = given_path(out, "OUT")
        found = located(checkpoint, url)
        _print_written(found, _here(found, out, dtype, shard_size))


def located(checkpoint: str, url: str | None) -> str:
    """The address of a checkpoint that can be read from here, of a job or a folder. Raises UnknownCheckpoint."""
    return _newest(_address(checkpoint)) if _is_place(checkpoint) else _of_job(url, checkpoint)


def _on_cluster(client: Client, checkpoint: str, dtype: str) -> Exported:
    named, _, step = _named(client, checkpoint).partition("@")
    job = client.job(named).id
    position = checkpoint_of(client, job, step, named).position
    ended = client.finished(client.export_checkpoint(job, position, dtype=dtype))
    if ended.exported is not None:
        return ended.exported
    assert ended.error is not None
    where = FieldError(field="CHECKPOINT", message=ended.error.message, remedy=ended.error.remedy)
    raise ApiError(ended.error.code, ended.error.message, None, [where])


def _named(client: Client, checkpoint: str) -> str:
    """JOB@STEP of a version of a model; other texts as they are. Raises UnknownCheckpoint."""
    reference = Reference.parse(checkpoint)
    if reference is None:
        return checkpoint
    version = client.model_version(reference.model, reference.which)
    if version.artifact is not None:
        message = f"{reference.model}@{version.number} is a file that a program logged, and no checkpoint."
        remedy = f"Download it: shardyard models {reference.model}@{version.number} --download DIR"
        raise UnknownCheckpoint(message, field="CHECKPOINT", remedy=remedy)
    refuse_gone(version, "CHECKPOINT")
    return f"{version.job}@{version.step}"


def refuse_gone(version: ModelVersion, field: str) -> None:
    """Raise UnknownCheckpoint if what the version was created from is not there any more."""
    if version.state == "deleted":
        what, by = ("checkpoint", "save of its step") if version.artifact is None else ("file", "file of its name")
        message = f"The {what} of {version.model}@{version.number} was deleted, or another {by} replaced it."
        raise UnknownCheckpoint(message, field=field, remedy=f"Name another version: shardyard models {version.model}")


def checkpoint_of(client: Client, job: str, step: str, named: str) -> Checkpoint:
    """The latest checkpoint of this step of the job with this id; without a step, the newest that still exists.

    `named`: the job as its user typed it. Raises UnknownCheckpoint.
    """
    before: int | None = None
    while True:
        page = client.checkpoints(job, before=before, limit=1000 if step else 20)
        found = next((one for one in page.items if (step == str(one.step) if step else one.state == "present")), None)
        if found is not None:
            return found
        if page.next is None:
            message = f"{named} has no checkpoint" + (f" of step {step}." if step else " that still exists.")
            raise UnknownCheckpoint(
                message, field="CHECKPOINT", remedy=f"List the checkpoints: shardyard checkpoints {named}"
            )
        before = page.next


def _is_place(checkpoint: str) -> bool:
    """Whether the text names a folder or a bucket, and not a job or a version."""
    if Reference.parse(checkpoint) is not None:
        return False
    return is_bucket(checkpoint) or "/" in checkpoint or checkpoint in (".", "..") or given_path(checkpoint).exists()


def _of_job(url: str | None, checkpoint: str) -> str:
    """The address of a job's checkpoint. Raises UnknownCheckpoint if it cannot be read from here."""
    try:
        with Client(url) as client:
            job, _, step = _named(client, checkpoint).partition("@")
            found = checkpoint_of(client, client.job(job).id, step, job)
    except ApiError as error:
        if Reference.parse(checkpoint) is not None:
            remedy = f"See `shardyard models`. A folder of that name is ./{checkpoint}."
            raise UnknownCheckpoint(error.detail, field="CHECKPOINT", remedy=remedy) from None
        message = f"There is no folder {checkpoint}, and it cannot be read as a job: {error.detail}"
        remedy = "Name a checkpoint's folder, or a job: see `shardyard list`."
        raise UnknownCheckpoint(message, field="CHECKPOINT", remedy=remedy) from None
    if not is_bucket(found.path) and newest_checkpoint(found.path) is None:
        message = f"The checkpoint of {job} at step {found.step} is in {found.path}, which cannot be read from here."
        remedy = f"Have the cluster write it: shardyard export {checkpoint} --on-cluster"
        raise UnknownCheckpoint(message, field="CHECKPOINT", remedy=remedy)
    return found.path


def _here(found: str, out: Path, dtype: str, shard_size: int) -> Exported:
    from ....workers.huggingface.export import export as write  # needs torch

    try:
        written = write(folder_at(found), folder_at(str(out.absolute())), dtype, shard_size << 20)
    except (CheckpointError, StorageError) as error:
        raise UnknownCheckpoint(str(error), field="CHECKPOINT", remedy="Export another one.") from None
    except OSError as error:
        raise MissingFile(f"{out} cannot be written: {error}", field="OUT", remedy="Name a new folder.") from None
    return Exported(dtype=dtype, **vars(written))


def _print_written(checkpoint: str, made: Exported) -> None:
    weights = f"{size(made.bytes)} of {made.dtype} in {made.files} file{'s' if made.files > 1 else ''}"
    facts = [("folder", made.path), ("parameters", number(made.parameters)), ("weights", weights)]
    Screen().facts(f"{checkpoint} as a Hugging Face model", facts)
    if made.tokenizer_missing is not None:
        Screen().warnings([FieldError(field="tokenizer", message=made.tokenizer_missing)])


def _address(checkpoint: str) -> str:
    """The checkpoints of a folder or a bucket. Raises UnknownCheckpoint, MissingFile."""
    try:
        where = address(checkpoint)
    except Refusal as refusal:
        raise UnknownCheckpoint(refusal.message, field="CHECKPOINT", remedy=refusal.remedy) from None
    return where if is_bucket(where) else str(given_path(where, "CHECKPOINT"))


def _newest(where: str) -> str:
    """The address of the complete checkpoint. Raises UnknownCheckpoint."""
    try:
        found = newest_checkpoint(where)
    except Refusal as refusal:
        raise UnknownCheckpoint(refusal.message, field="CHECKPOINT", remedy=refusal.remedy) from None
    except StorageError as error:
        raise UnknownCheckpoint(str(error), field="CHECKPOINT", remedy="Try again when the storage answers.") from None
    if found is None:
        remedy = "List a job's checkpoints with: shardyard checkpoints JOB"
        raise UnknownCheckpoint(f"{where} holds no complete checkpoint.", field="CHECKPOINT", remedy=remedy)
    return found
