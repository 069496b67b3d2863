"""`shardyard sample`: generates text with a trained model, from a checkpoint or an export."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from ....service.errors import MissingFile, ShardyardError, UnknownCheckpoint
from ....service.schemas.job import Job
from ....service.schemas.model import Reference
from ....strategies.layout import Refusal
from ....workers.checkpoint.errors import CheckpointError
from ....workers.data.errors import DataError
from ....workers.storage.open_folder import folder_at
from ....workers.storage.uri import is_bucket
from ...given_path import given_path
from ..options import Json, Url
from ..terminal import sanitize
from ..terminal.screen import Screen
from .models import located

#: So much of a text is enough to see what was learned, and takes seconds.
TOKENS = 200


def sample(
    model: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="JOB or JOB@STEP; a version as models/NAME@ALIAS; a checkpoint's folder or s3:// URI; a folder of checkpoints (the "
            "newest); a Hugging Face folder.",
        ),
    ],
    prompt: Annotated[
        str,
        typer.Option(
            "--prompt", help="Prompt. Default: the beginning of a document, unless those of its training were packed."
        ),
    ] = "",
    tokens: Annotated[int, typer.Option("--tokens", min=1, max=10_000, help="Maximum number of tokens.")] = TOKENS,
    temperature: Annotated[
        float,
        typer.Option("--temperature", min=0.0, max=100.0, help="Sampling temperature; 0 takes the likeliest token."),
    ] = 0.8,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed; the same seed gives the same text.")] = 0,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", help="`bytes` or a tokenizer.json. Default: the one of the training."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Generate text with a trained model, here on the CPU."""
    found = _address(model, url)
    screen = Screen()
    screen.say(f"{found} writes:")
    text = written(found, prompt, tokens, temperature, seed, tokenizer)
    if json:
        screen.json({"model": found, "prompt": prompt, "text": text})
    else:
        print(sanitize.lines(prompt + text))


def show(screen: Screen, job: Job, prompt: str) -> None:
    """The text that a job's model generates after `prompt`, or why it cannot."""
    checkpoint = job.summary.checkpoint if job.summary else None
    if checkpoint is None:
        screen.say("There is nothing to sample: the job keeps no checkpoint (train.checkpoint.final).")
        return
    try:
        text = written(checkpoint, prompt, TOKENS, 0.8, 0, None)
    except ShardyardError as error:
        screen.say(f"The model cannot be sampled here: {error.message} {error.remedy or ''}".rstrip())
        return
    screen.say("What it writes now:")
    print(sanitize.lines(prompt + text))


def written(found: str, prompt: str, tokens: int, temperature: float, seed: int, tokenizer: str | None) -> str:
    """The text that the model at this address generates after `prompt`. Raises UnknownCheckpoint, MissingFile."""
    from ....workers.sample import Draw, of_checkpoint, of_export  # needs torch

    try:
        is_export = not is_bucket(found) and (Path(found) / "config.json").is_file()
        writer = of_export(Path(found), tokenizer) if is_export else of_checkpoint(folder_at(found), tokenizer)
        return writer.write(prompt, Draw(tokens, temperature, seed))
    except DataError as error:
        remedy = f"{error.remedy} Name it with --tokenizer."
        raise MissingFile(error.message, field="--tokenizer", remedy=remedy) from None
    except Refusal as refusal:
        raise UnknownCheckpoint(refusal.message, field="CHECKPOINT", remedy=refusal.remedy) from None
    except (CheckpointError, OSError) as error:
        raise UnknownCheckpoint(str(error), field="CHECKPOINT", remedy="Sample another one.") from None


def _address(model: str, url: str | None) -> str:
    """Load the model of a Hugging Face folder or a checkpoint. Raises UnknownCheckpoint, MissingFile."""
    if Reference.parse(model) is not None:  # as in a spec, also beside a folder of that name
        return located(model, url)
    with contextlib.suppress(OSError):  # no folder's name
        folder = given_path(model, "CHECKPOINT")
        if not is_bucket(model) and (folder / "config.json").is_file():
            return str(folder.absolute())
    return located(model, url)
