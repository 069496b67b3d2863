"""A job that runs a command: its checks before anything is stored, and its row."""

from functools import partial
from pathlib import Path
from typing import Any, Final

from .. import capacity
from ..errors import InvalidSpec, MissingFile, NotAFile
from ..settings import Settings
from ..spec import CommandSpec
from ..spec_files import SpecFiles
from ..store.engine import Store
from . import queued_job, rank_environment, validation
from .columns import new_columns, refuse_null_characters

#: Variables by which the ranks find each other. Those of the job's own would break that.
_OURS: Final = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})


async def new_row(store: Store, settings: Settings, spec: CommandSpec, files: SpecFiles) -> dict[str, Any]:
    """Check the spec, and return its row, which is not stored yet.

    Raises InvalidSpec, MissingFile, NotAFile, FilesTooSlow, TooManyRanks.
    """
    refuse_null_characters(spec.model_dump(mode="json", by_alias=True))
    rank_environment.check(spec.resources.env)
    _check_variables(spec)
    _check_absolute(spec.cwd)
    if settings.local_files and spec.cwd is not None:
        await files.look(partial(_check_folder, spec.cwd))
    async with store.read() as tx:
        clusters = await capacity.inventories(tx, settings)
    validation.check_ranks(spec, spec.ranks, clusters)
    return new_columns(spec) | {
        "spec": spec.model_dump(mode="json", by_alias=True),
        "layout": f"{spec.ranks} rank{'s' if spec.ranks > 1 else ''}",
        "batch": "",
        "world_size": spec.ranks,
        "tensor": spec.together,
        "shape": queued_job.waiting(spec).shape,
        "elastic": None,
        "resume": None,
        "steps": 0,
    }


def _check_variables(spec: CommandSpec) -> None:
    ours = sorted(_OURS & spec.resources.env.keys())
    if ours:
        remedy = "Remove it: each rank gets its own value."
        raise InvalidSpec(f"{ours[0]} says which rank a process is.", field=f"resources.env.{ours[0]}", remedy=remedy)


def _check_absolute(cwd: str | None) -> None:
    if cwd is not None and not cwd.startswith("/"):
        raise InvalidSpec(
            f"{cwd[:200]!r} is a relative path, and the server has no folder to resolve it against.",
            field="cwd",
            remedy="Write an absolute path. The command line resolves a relative path in a spec file against the file's folder.",
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
