"""A job that runs a command: its checks before anything is stored, and its row."""

from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from .. import capacity, secrets
from ..errors import InvalidSpec, MissingFile, NotAFile
from ..settings import Settings
from ..spec import CommandSpec
from ..spec_files import SpecFiles
from ..store.engine import Store
from . import (
    code_archives,
    elastic,
    program_checkpoints,
    program_environment,
    program_files,
    rank_environment,
    validation,
)
from .columns import new_columns, refuse_null_characters


async def new_row(
    store: Store, settings: Settings, spec: CommandSpec, files: SpecFiles, *, uploaded: bool = True
) -> dict[str, Any]:
    """Check the spec, and return its row, which is not stored yet. `uploaded`: its code must be there.

    Raises InvalidSpec, MissingFile, NotAFile, FilesTooSlow, TooManyRanks, UnknownCode, UnknownSecret, and for `resume_from` what
    `program_checkpoints.resolved` raises.
    """
    refuse_null_characters(spec.model_dump(mode="json", by_alias=True))
    rank_environment.check(spec)
    if spec.cwd is not None:
        _check_cwd(spec.cwd, in_code=spec.code is not None)
    if spec.env is not None:
        program_environment.check(spec.env, in_code=spec.code is not None)
    paths = program_files.check(spec.files)
    if settings.local_files and paths:
        await files.look(partial(program_files.check_there, paths))
    if settings.local_files and spec.cwd is not None and spec.cwd.startswith("/"):
        await files.look(partial(_check_folder, spec.cwd))
    if settings.local_files and spec.env is not None:
        await files.look(partial(program_environment.check_there, spec.env))
    await files.look(lambda _: program_checkpoints.check(spec, settings))
    resume = await program_checkpoints.resolved(store, settings, spec, files)
    async with store.read() as tx:
        clusters = [one.inventory for one in await capacity.known(tx, settings)]
        code = await code_archives.named_by(tx, spec) if uploaded else None
        await secrets.sealed(tx, spec.secrets)
    validation.check_ranks(spec, spec.sizes[-1], clusters)
    if resume is not None:
        spec = spec.model_copy(update={"resume_from": resume.named})
    of_files = {"resume": None if resume is None else resume.path, "code": code, "steps": 0}
    return new_columns(spec) | elastic.columns_of_command(spec) | of_files


def _check_cwd(cwd: str, *, in_code: bool) -> None:
    """Raise InvalidSpec for a path that is relative to nothing, or leaves the folder of code."""
    if cwd.startswith("/"):
        return
    if not in_code:
        raise InvalidSpec(
            f"{cwd[:200]!r} is a relative path, and the server has no folder to resolve it against.",
            field="cwd",
            remedy="Write an absolute path. The command line resolves a relative path in a spec file against the file's folder.",
        )
    if ".." in PurePosixPath(cwd).parts:
        raise InvalidSpec(
            f"{cwd[:200]!r} leaves the folder of code.",
            field="cwd",
            remedy="Name a folder inside it, or a larger code.dir.",
        )


def _check_folder(cwd: str, _: float) -> None:
    try:
        there, folder = Path(cwd).exists(), Path(cwd).is_dir()
    except OSError:  # a name too long
        there = folder = False
    if not there:
        raise MissingFile(f"{cwd} does not exist.", field="cwd", remedy="Name a folder that all nodes have.")
    if not folder:
        raise NotAFile(
            f"{cwd} is not a folder.", field="cwd", remedy=f"Name the folder that it is in: {Path(cwd).parent}"
        )
