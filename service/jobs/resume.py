"""Resolves and checks `resume_from` as far as the server can: the checkpoint, its position in the data, its model and its optimizer.

The trainers repeat the checks, and also check the checkpoint's files and the text, which only they can read.
"""

import contextlib
import errno
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from ...strategies.layout import Refusal
from ...workers.checkpoint.errors import CheckpointError
from ...workers.checkpoint.manifest import MANIFEST, Manifest, read
from ...workers.checkpoint.retention import complete, is_step, newest, step_of
from ...workers.data.position import known_order, refuse_other_order
from ...workers.models.continued_model import refuse_other_model
from ...workers.spec import TrainSpec
from ...workers.storage.errors import StorageError
from ...workers.storage.folder import Folder
from ...workers.storage.open_folder import folder_at
from ...workers.storage.uri import is_bucket
from ..errors import CheckpointCorrupt, ResumeMismatch, UnknownCheckpoint
from ..model_errors import CheckpointStorageFailed
from ..settings import Settings

#: Maximum bytes of a manifest that is read here. Only the trainers read a larger one, of some hundred ranks.
_MAX_BYTES: Final = 8 << 20
#: Errors of a path at which nothing can be read, now or later.
_NOT_THERE: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM))
_FIELD: Final = "train.resume_from"
#: Optimizer → how the names of its state's tensors begin in a checkpoint.
_STATES: Final = {"adamw": "optimizer.exp_avg.", "sgd": "optimizer.momentum_buffer."}

T = TypeVar("T")


def newest_checkpoint(where: str) -> str | None:
    """The newest complete checkpoint below a job's folder, or the folder itself when it is one.

    Raises CheckpointStorageFailed for a passing error of a file system, StorageError for one of a bucket, Refusal.
    """
    found = _seen(where, newest)
    return None if found is None else found.where


def complete_checkpoints(where: str) -> list[Folder]:
    """The complete checkpoints below a job's folder, newest first. Raises as `newest_checkpoint`."""
    return _seen(where, complete) or []


def _seen(where: str, look: Callable[[Folder], T]) -> T | None:
    """What `look` returns for the folder; None if nothing can be read there."""
    try:
        return look(folder_at(where if is_bucket(where) else str(Path(where).expanduser().absolute())))
    except RuntimeError:  # an unknown ~user
        return None
    except OSError as error:
        if is_bucket(where) and isinstance(error, StorageError):
            raise
        if error.errno in _NOT_THERE:
            return None
        message = f"{where[:200]} cannot be read: {error.strerror}."
        raise CheckpointStorageFailed(message, field=_FIELD, remedy="Try again in a moment.") from None


def resume_from_path(path: str, settings: Settings) -> str:
    """The checkpoint at a path: a checkpoint's folder, or one that holds checkpoints. Raises UnknownCheckpoint."""
    if is_bucket(path):
        return path  # only the trainers read it: they have the credentials
    if not path.startswith(("/", "~")):
        raise _unknown(
            f"{path!r} is neither a job nor an absolute path.",
            "Name a job by id or name (`shardyard list`), or an absolute path.",
        )
    if not settings.local_files:
        if path.startswith("~"):
            remedy = "Write an absolute path: whose home folder it is, the nodes do not know."
            raise _unknown(f"{path!r} is not an absolute path.", remedy)
        return path  # only the trainers see it
    found = newest_checkpoint(path)
    if found is None:
        remedy = f"Set {_FIELD} to a job's id or name (`shardyard list`), or to a checkpoint's folder."
        raise _unknown(f"{path!r} is neither a job nor a complete checkpoint's folder.", remedy)
    return found


def refuse_other_kind(version: str, trained: bool, *, trains: bool, field: str) -> None:
    """Raise ResumeMismatch if a program is to continue what Shardyard's loop `trained`, or the other way round."""
    if trained is trains:
        return
    made, remedy = (
        ("a program's own files", "Name a version of a job that trains.")
        if trains
        else ("a checkpoint of Shardyard's loop", "Name a version of a job that runs a command.")
    )
    raise ResumeMismatch(f"{version} is {made}.", field=field, remedy=remedy)


def check_resumed(train: TrainSpec, resume: str, source: TrainSpec | None, local_files: bool) -> None:
    """Check that the job can resume from `resume`, a checkpoint of a job with the spec `source` (None if unknown). Raises ResumeMismatch,
    CheckpointCorrupt."""
    manifest = _manifest(resume) if local_files and not is_bucket(resume) else None
    if manifest is not None and "program" in manifest.training:
        raise ResumeMismatch(
            f"{resume} holds a program's own files, which are no state of Shardyard's training.",
            field="train.resume_from",
            remedy="Name a job that trains, or its checkpoint.",
        )
    if manifest is not None and manifest.step >= train.steps:
        raise ResumeMismatch(
            f"the checkpoint is of step {manifest.step}, and step numbers continue from there: {train.steps} steps leave nothing to do.",
            field="train.steps",
            remedy=f"Set it to more than {manifest.step}.",
        )
    if train.resume_data == "continue":
        order = manifest.training.get("data", {}) if manifest else known_order(source) if source else {}
        _refuse(lambda: refuse_other_order(order, known_order(train)))
    _refuse_other_model(train, _model_of(manifest, source))
    _refuse_other_optimizer(train, _optimizer_of(manifest, source))


def _refuse_other_model(train: TrainSpec, saved: Mapping[str, Any] | None) -> None:
    if saved is None or train.model.from_ is not None:  # only the trainers see the folder of a published model
        return
    vocab = _vocab(train) or saved.get("vocab") or 256
    _refuse(lambda: refuse_other_model(saved, train.architecture(vocab)))


def _model_of(manifest: Manifest | None, source: TrainSpec | None) -> Mapping[str, Any] | None:
    """The numbers of the checkpoint's model, as far as they are known here."""
    if manifest is not None:
        saved: Mapping[str, Any] | None = manifest.training.get("model")
        return saved
    if source is None or source.model.from_ is not None:
        return None
    found, vocab = source.architecture(vocab=256), _vocab(source)
    return None if found is None else {**found.model_dump(), "vocab": vocab}


def _vocab(train: TrainSpec) -> int | None:
    """The size of the model's vocabulary; None if only the tokenizer says it."""
    return train.model.vocab or (256 if train.data.tokenizer == "bytes" else None)


def _refuse_other_optimizer(train: TrainSpec, saved: str | None) -> None:
    if saved not in (None, train.optimizer.name):
        raise ResumeMismatch(
            f"the checkpoint has the optimizer state of {saved}, and {train.optimizer.name} cannot continue from it.",
            field="train.optimizer.name",
            remedy=f"Set train.optimizer.name to {saved}, or leave train.resume_from out.",
        )


def _optimizer_of(manifest: Manifest | None, source: TrainSpec | None) -> str | None:
    """The optimizer whose state the checkpoint has, as far as it is known here."""
    if manifest is None:
        return None if source is None else source.optimizer.name
    names = (name for name, state in _STATES.items() if any(tensor.startswith(state) for tensor in manifest.tensors))
    return next(names, None)


def _refuse(check: Callable[[], None]) -> None:
    try:
        check()
    except Refusal as refusal:
        raise ResumeMismatch(refusal.message, field=f"train.{refusal.field}", remedy=refusal.remedy) from None


def _manifest(where: str) -> Manifest | None:
    """A checkpoint's manifest; None if it cannot be seen from here or is too large. Raises CheckpointCorrupt."""
    folder = folder_at(where)
    try:
        file = Path(where, MANIFEST).stat()
        if stat.S_ISREG(file.st_mode) and file.st_size > _MAX_BYTES:
            return None
    except OSError:
        return None
    try:
        why = _damage(folder)
        if isinstance(why, Manifest):
            return why
    except (StorageError, OSError):
        return None
    older = _whole_before(folder)
    instead = (
        f"Resume from the checkpoint before it: {older}"
        if older
        else "Resume from another checkpoint, or leave resume_from out."
    )
    raise CheckpointCorrupt(why, field="train.resume_from", remedy=instead)


def _whole_before(folder: Folder) -> Folder | None:
    """The newest checkpoint before this one whose manifest can be read from here."""
    with contextlib.suppress(OSError):
        for each in _before(folder):
            with contextlib.suppress(StorageError):
                if isinstance(_damage(each), Manifest):
                    return each
    return None


def _damage(folder: Folder) -> Manifest | str:
    """The manifest, or why it cannot be read."""
    try:
        return read(folder)
    except StorageError:
        raise
    except CheckpointError as error:
        return str(error)


def _before(folder: Folder) -> list[Folder]:
    """The complete checkpoints beside this one that are older, newest first; all if its own name says no step."""
    beside = complete(folder_at(folder.where.rpartition("/")[0]))
    return [each for each in beside if not is_step(folder.name) or step_of(each) < step_of(folder)]


def _unknown(message: str, remedy: str) -> UnknownCheckpoint:
    return UnknownCheckpoint(message, field=_FIELD, remedy=remedy)
