"""Whether a job can go on in the data where the checkpoint of its `resume_from` ends, as far as that is seen from here.

The trainers check it in any case, and also what only they see: the text itself.
"""

import stat
from pathlib import Path
from typing import Final

from ..strategies.layout import Refusal
from ..workers.checkpoint.address import is_bucket
from ..workers.checkpoint.errors import CheckpointError
from ..workers.checkpoint.manifest import MANIFEST, Manifest, read
from ..workers.checkpoint.storage import folder_at
from ..workers.data.position import known_order, refuse_other_order
from ..workers.spec import TrainSpec
from .errors import ResumeMismatch

#: A larger manifest, of some hundred ranks, is left to the trainers.
_MAX_BYTES: Final = 8 << 20


def check_resumed_data(train: TrainSpec, resume: str, source: TrainSpec | None, local_files: bool) -> None:
    """`resume` is the checkpoint, `source` the spec of the job that saved it, where a job was named. Raises ResumeMismatch."""
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
    """A checkpoint's manifest; None where it is too large, or cannot be read: the trainers say why."""
    try:
        file = Path(where, MANIFEST).stat()
        if not stat.S_ISREG(file.st_mode) or file.st_size > _MAX_BYTES:
            return None
        return read(folder_at(where))
    except (OSError, CheckpointError, KeyError, TypeError):
        return None
