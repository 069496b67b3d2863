"""Trained models as files: what needs a checkpoint's folder and no control plane."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ...service.errors import MissingFile, UnknownCheckpoint
from ...service.preflight import newest_checkpoint
from ...strategies.layout import Refusal
from ...workers.checkpoint.address import address
from ...workers.checkpoint.errors import CheckpointError
from ...workers.checkpoint.storage import folder_at
from .screen import Screen, number


def export(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="A checkpoint's folder or s3:// URI, or of one that holds them: then the newest."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; it must be new or empty.")],
    dtype: Annotated[Literal["fp32", "bf16", "fp16", "fp64"], typer.Option(help="Of the written weights.")] = "fp32",
    shard_size: Annotated[int, typer.Option(min=1, metavar="MB", help="Megabytes per file of weights.")] = 5000,
) -> None:
    """Write a checkpoint of any layout as a Hugging Face folder that transformers reads."""
    found = _newest(checkpoint)
    from ...workers.export import export as write  # needs torch

    try:
        written = write(folder_at(found), folder_at(str(out.expanduser().absolute())), dtype, shard_size * 1_000_000)
    except CheckpointError as error:
        raise UnknownCheckpoint(str(error), field="CHECKPOINT", remedy="Export another one.") from None
    except OSError as error:
        raise MissingFile(f"{out} cannot be written: {error}", field="OUT", remedy="Name a new folder.") from None
    Screen().facts(
        f"{found} as a Hugging Face model",
        [
            ("folder", written.path),
            ("parameters", number(written.parameters)),
            (
                "weights",
                f"{written.bytes:,} bytes of {dtype} in {written.files} file{'s' if written.files > 1 else ''}",
            ),
        ],
    )


def _newest(checkpoint: str) -> str:
    """The address of the complete checkpoint that is meant. Raises UnknownCheckpoint."""
    try:
        found = newest_checkpoint(address(checkpoint))
    except Refusal as refusal:
        raise UnknownCheckpoint(refusal.message, field="CHECKPOINT", remedy=refusal.remedy) from None
    except CheckpointError as error:
        raise UnknownCheckpoint(str(error), field="CHECKPOINT", remedy="Try again when the storage answers.") from None
    if found is None:
        remedy = "Read a job's newest checkpoint with: shardyard show JOB"
        raise UnknownCheckpoint(f"{checkpoint} holds no complete checkpoint.", field="CHECKPOINT", remedy=remedy)
    return found
