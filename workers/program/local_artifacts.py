"""Files that a program logs outside a job: each by its name below a folder of this machine, those of a step below the step's folder."""

import contextlib
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..messages.artifact import Artifact


class LocalArtifacts(NamedTuple):
    """Copies what is stored by its digest in the folder `stored` to its name below `folder`. What was there by that name is replaced."""

    stored: Path
    folder: Path

    def keep(self, artifacts: Sequence[Artifact]) -> None:
        """Any thread may call it. A file that cannot be kept is a line on standard error."""
        for one in artifacts:
            path = self.folder / ("" if one.step is None else f"step-{one.step:08d}") / one.name
            partial = path.with_name(f".{secrets.token_hex(8)}.partial")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.stored / one.sha256, partial)
                partial.replace(path)
            except OSError as error:
                with contextlib.suppress(OSError):  # its folder may be a file
                    partial.unlink()
                sys.stderr.write(f"shardyard: {one.name} is not kept in {self.folder}: {error.strerror or error}\n")
