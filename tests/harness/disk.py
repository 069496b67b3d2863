"""A small disk that can be filled: a tmpfs of its own, where this user may mount one."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path


class SmallDisk:
    """Mounted on a folder of its own until `end`. Raises OSError, with the reason, where that cannot be done."""

    BYTES = 64 << 20

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise OSError("only root may mount a tmpfs")
        self.folder = Path(tempfile.mkdtemp(prefix="sy-disk-"))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self.BYTES},mode=700", "shardyard-test", str(self.folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            self.folder.rmdir()
            raise OSError(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")

    def fill(self) -> None:
        """Take what room there is; again, what others have given back since."""
        with self._filler.open("ab") as out, contextlib.suppress(OSError):  # who writes meanwhile may be faster
            room = os.statvfs(self.folder)
            if room.f_bavail:
                os.posix_fallocate(out.fileno(), os.fstat(out.fileno()).st_size, room.f_bavail * room.f_frsize)

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def end(self) -> None:
        """Raises CalledProcessError where a process still holds a file on it."""
        subprocess.run(["umount", str(self.folder)], capture_output=True, text=True, check=True)
        self.folder.rmdir()

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"
