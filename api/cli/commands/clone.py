"""`shardyard clone`: submits a copy of a job's spec, with its comments, as a new job. The old job stays as it is.

The job may be another user's: no code that its spec names is run here.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Annotated

import typer
import yaml

from ....service.errors import ShardyardError
from ....workers.atomic_files import write_whole
from ...client import ApiError, Client
from ...errors import InvalidParameter
from ...spec_copy import cloned
from ...spec_file import read, text_of
from ...spec_overrides import values_of, with_overrides, without_old_archive
from ..exit_codes import ExitCode
from ..options import JobName, Json, Overrides, Url, Wait
from ..terminal.screen import Screen
from .submit import show_submitted, submit_job

Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="Idempotency key: cloning again with the same key returns the same new job. If code is uploaded or a value is a relative "
        "path, the old job must not have changed.",
    ),
]


def clone(
    job: JobName,
    overrides: Overrides = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the new job. Default: that of the old one, with -clone.")
    ] = None,
    edit: Annotated[bool, typer.Option("--edit", help="Open the spec in $EDITOR before it is submitted.")] = False,
    key: Key = None,
    wait: Wait = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Submit a copy of a job's spec as a new job: its fork, with other values if they are given."""
    screen = Screen()
    with Client(url) as client:
        if not edit:
            values, on_upload = values_of(overrides or []), screen.uploading
            made = client.clone(job, set=values, name=name, idempotency_key=key, on_upload=on_upload)
            show_submitted(screen, client, made, json, wait=wait)
            return
        found = client.job(job)
        submitted, values = client.submitted_spec(found.id), values_of(overrides or [])
        given = with_overrides(cloned(found, submitted, name, values), overrides or [])
        path = Path(tempfile.mkdtemp(prefix="shardyard-"), f"{found.name}.yaml")
        if not _edited(path, text_of(given, given.document) or yaml.safe_dump(given.document, sort_keys=False)):
            screen.hint("The editor saved nothing, so nothing was submitted.")
            raise typer.Exit(ExitCode.ERROR)
        stays = False
        key = key or str(uuid.uuid4())  # submitted again with it, what was stored already is no second job
        try:
            edited = without_old_archive(read(path, Path.cwd()), given)
            text = text_of(edited, edited.document)
            if text is not None and text != edited.text:
                write_whole(path, [text.encode()])  # so that a text that stays means the same in its folder
            stays = text is not None
            submit_job(screen, client, edited, key, json, wait=wait, plan_s=0)
        except (ApiError, ShardyardError, OSError, KeyboardInterrupt):
            screen.hint(f"Your text is kept. Submit it with: shardyard submit {path} --key {key}")
            if not stays:
                screen.hint(f"Its relative paths then count from {path.parent}. Write them as absolute ones.")
            raise
        except typer.Exit:  # at the end of a job that is waited for
            shutil.rmtree(path.parent)
            raise
        shutil.rmtree(path.parent)  # with what the editor has put beside it


def _edited(path: Path, draft: str) -> bool:
    """Whether the user's editor, called with the draft in this file, has saved it. If not, the folder goes unless the text is another."""
    path.write_text(draft, encoding="utf-8")
    saved = False
    try:
        saved = _saved(path)
    finally:
        if not saved and path.is_file() and path.read_bytes() == draft.encode():
            shutil.rmtree(path.parent)
    return saved


def _saved(path: Path) -> bool:
    """Whether the user's editor has written the file. Raises InvalidParameter if there is none."""
    before = path.stat().st_mtime_ns, path.read_bytes()
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except OSError as error:
        remedy = "Set the variable EDITOR to an editor, such as nano."
        message = f"The editor {editor!r} cannot be started: {error.strerror or error}."
        raise InvalidParameter(message, field="--edit", remedy=remedy) from None
    return status == 0 and (path.stat().st_mtime_ns, path.read_bytes()) != before
