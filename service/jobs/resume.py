"""Where a job with a `resume_from` goes on, and whether it can, as far as that is seen from here: its checkpoint, its place in the data.

The trainers check it in any case, and also what only they see: the checkpoint's files, and the text itself.
"""

import stat
from pathlib import Path
from typing import Final

from ...strategies.layout import Refusal
from ...workers.checkpoint.errors import CheckpointError
from ...workers.checkpoint.manifest import MANIFEST, Manifest, read
from ...workers.checkpoint.retention import complete, newest
from ...workers.data.position import known_order, refuse_other_order
from ...workers.spec import TrainSpec
from ...workers.storage.errors import StorageError
from ...workers.storage.folder import Folder
from ...workers.storage.open_folder import folder_at
from ...workers.storage.uri import is_bucket
from ..errors import CheckpointDamaged, ResumeMismatch, UnknownCheckpoint
from ..settings import Settings

#: A larger manifest, of some hundred ranks, is left to the trainers.
_MAX_BYTES: Final = 8 << 20


def newest_checkpoint(where: str) -> str | None:
    """The newest complete checkpoint below a job's folder, or the folder itself when it is one. Raises StorageError, Refusal."""
    try:
        found = newest(folder_at(where if is_bucket(where) else str(Path(where).expanduser().absolute())))
    except StorageError:
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
    if not path.startswith(("/", "~")):
        raise _unknown(
            f"{path!r} is neither a job nor an absolute path.",
            "Name a job by id or name (`shardyard list`), or an absolute path.",
        )
    if not settings.local_files:
        return path  # seen by the trainers only
    found = newest_checkpoint(path)
    if found is None:
        raise _unknown(
            f"{path!r} is neither a job nor a complete checkpoint's folder.", "See `shardyard list` for jobs."
        )
    return found


def check_resumed(train: TrainSpec, resume: str, source: TrainSpec | None, local_files: bool) -> None:
    """`resume` is the checkpoint, `source` the spec of the job that saved it, where a job was named. Raises ResumeMismatch,
    CheckpointDamaged."""
    manifest = _manifest(resume) if local_files and not is_bucket(resume) else None
    if manifest is not None and manifest.step >= train.steps:
        raise ResumeMismatch(
            f"the checkpoint is of step {manifest.step}, and steps go on counting: {train.steps} leaves nothing to do.",
            field="train.steps",
            remedy=f"Set it to more than {manifest.step}.",
        )
    if train.resume_data == "restart":
        return
    order = manifest.training.get("data", {}) if manifest else known_order(source) if source else {}
    try:
        refuse_other_order(order, known_order(train))
    except Refusal as refusal:
        raise ResumeMismatch(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None


def _manifest(where: str) -> Manifest | None:
    """A checkpoint's manifest; None where there is none to be seen from here, or it is too large. Raises CheckpointDamaged."""
    folder = folder_at(where)
    try:
        file = Path(where, MANIFEST).stat()
        if stat.S_ISREG(file.st_mode) and file.st_size > _MAX_BYTES:
            return None
    except OSError:
        return None
    why = _damage(folder)
    if isinstance(why, Manifest):
        return why
    older = next((each for each in _before(folder) if isinstance(_damage(each), Manifest)), None)
    instead = f"Go on from the one before: {older}" if older else "Go on from another one, or leave resume_from out."
    raise CheckpointDamaged(why, field="train.resume_from", remedy=instead)


def _damage(folder: Folder) -> Manifest | str:
    """The manifest, or why it cannot be read."""
    try:
        return read(folder)
    except StorageError:
        raise
    except CheckpointError as error:
        return str(error)
    except (KeyError, TypeError, ValueError) as error:  # written by another program
        return f"{folder} is damaged: {MANIFEST} has no {error}."


def _before(folder: Folder) -> list[Folder]:
    """The complete checkpoints beside this one that are older, newest first."""
    beside = complete(folder_at(folder.where.rpartition("/")[0]))
    return [each for each in beside if each.name < folder.name]


def _unknown(message: str, remedy: str) -> UnknownCheckpoint:
    return UnknownCheckpoint(message, field="train.resume_from", remedy=remedy)
