"""Checks the storage of a program's checkpoints, and resolves its `resume_from` as far as the server can.

The ranks repeat the checks, and also check the checkpoint's files, which only they can read.
"""

from dataclasses import dataclass
from functools import partial

from sqlalchemy.engine import RowMapping

from ...strategies.layout import Refusal
from ...workers.checkpoint.errors import CheckpointCorrupt as CorruptFiles
from ...workers.checkpoint.errors import CheckpointError
from ...workers.checkpoint.program_files import read_program
from ...workers.storage.errors import StorageError
from ...workers.storage.open_folder import folder_at
from ...workers.storage.uri import is_bucket, refuse_unreachable
from ..errors import CheckpointCorrupt, InvalidSpec, ResumeMismatch, UnknownCheckpoint
from ..queries import checkpoint_catalogue, models
from ..queries.jobs import find
from ..settings import Settings
from ..spec import CommandSpec
from ..spec_files import SpecFiles
from ..store.engine import Store
from . import resume, validation
from .source_checkpoint import newest_of_job

_FIELD = "resume_from"


def check(spec: CommandSpec, settings: Settings) -> None:
    """Raise InvalidSpec for storage that cannot be meant, or for which a library is missing."""
    uri = spec.checkpoint.uri
    for field, where in (("checkpoint.uri", uri), (_FIELD, spec.resume_from)):
        try:
            refuse_unreachable(where or "")
        except Refusal as error:
            raise InvalidSpec(error.message, field=field, remedy=error.remedy) from None
    if uri is not None and not is_bucket(uri) and not uri.startswith("/"):
        raise InvalidSpec(
            f"{uri[:200]!r} is a relative path, and the server has no folder to resolve it against.",
            field="checkpoint.uri",
            remedy="Write an absolute path. The command line resolves relative paths in a spec file against the file's folder.",
        )
    if settings.local_files:
        validation.check_writable(uri, "checkpoint.uri")


@dataclass(frozen=True)
class Resumed:
    """The address of the checkpoint, and how the stored spec names it."""

    path: str
    named: str


async def resolved(store: Store, settings: Settings, spec: CommandSpec, files: SpecFiles) -> Resumed | None:
    """The checkpoint that `resume_from` names. Raises UnknownCheckpoint, CheckpointDeleted, CheckpointCorrupt, ResumeMismatch,
    ModelNotFound, VersionNotFound."""
    if spec.resume_from is None:
        return None
    async with store.read() as tx:
        version = await models.to_resume(tx, spec.resume_from, _FIELD)
        source = None if version is not None else await find(tx, spec.resume_from)
        await checkpoint_catalogue.refuse_unusable_path(tx, spec.resume_from, _FIELD)  # a clone's may be gone
    named = spec.resume_from
    if version is not None:
        found, named = str(version["path"]), models.pinned_text(version)
        resume.refuse_other_kind(named, version["trained"], trains=False, field=_FIELD)
    else:
        found = await _found(store, settings, named, source, files)
    async with store.read() as tx:
        await checkpoint_catalogue.refuse_unusable_path(tx, found, _FIELD)
    if settings.local_files and not is_bucket(found):
        await files.look(partial(_check_program, found))
    return Resumed(found, named)


async def _found(store: Store, settings: Settings, given: str, source: RowMapping | None, files: SpecFiles) -> str:
    """`source`: the job of that id or name, if there is one."""
    if source is not None and "command" not in source["spec"]:
        raise _mismatch(f"{source['id']} trains with Shardyard's loop, and a program cannot read its checkpoints.")
    try:
        if source is None:
            return await files.look(lambda _: resume.resume_from_path(given, settings))
        return await newest_of_job(store, settings, source, files, _FIELD)
    except UnknownCheckpoint as error:
        remedy = "Name another job, or a checkpoint's folder; a program saves with shardyard.checkpoint."
        raise UnknownCheckpoint(error.message, field=_FIELD, remedy=remedy) from None


def _check_program(where: str, _: float) -> None:
    try:
        read_program(folder_at(where))
    except CorruptFiles as error:
        remedy = "Resume from another checkpoint, or leave resume_from out."
        raise CheckpointCorrupt(str(error), field=_FIELD, remedy=remedy) from None
    except CheckpointError as error:
        raise _mismatch(str(error)) from None
    except (StorageError, OSError):
        return  # the ranks may see it


def _mismatch(message: str) -> ResumeMismatch:
    return ResumeMismatch(message, field=_FIELD, remedy="Name a job that runs a command, or its checkpoint.")
