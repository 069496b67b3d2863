"""Where chaos plays: a control plane on PostgreSQL whose checkpoints lie on a small disk. At its end nothing of it may be left."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from .disk import SmallDisk
from .plane import Plane, until
from .postgres import Postgres


@dataclass
class Stage:
    """`disk` is None where none can be mounted, for the reason `no_disk`."""

    plane: Plane
    postgres: Postgres
    disk: SmallDisk | None
    no_disk: str = ""

    def cleared(self) -> None:
        """End the control plane in order; nothing that belongs to it may live on."""
        assert self.plane.process is not None
        self.plane.process.terminate()
        self.plane.process.wait(240)  # reaped here: `down` would wait for what stays a zombie of ours
        done = self.plane.run("down", "--force", timeout=240)
        assert done.returncode == 0, done.stderr
        until(lambda: not self.plane.processes(), 240, f"the end of {self.plane.processes()}")


@contextlib.contextmanager
def a_stage(postgres: Postgres) -> Iterator[Stage]:
    """Whatever happens, nothing of it stays."""
    with contextlib.ExitStack() as stack:
        disk, why = _disk()
        if disk is not None:
            stack.callback(disk.end)
        url = postgres.new_database()
        stack.callback(postgres.drop, url)
        plane = Plane()
        plane.given = {"SHARDYARD_DATABASE_URL": url} | ({"SHARDYARD_STORAGE": str(disk.folder)} if disk else {})
        stack.callback(plane.end)
        plane.up()
        yield Stage(plane, postgres, disk, why)


def _disk() -> tuple[SmallDisk | None, str]:
    try:
        return SmallDisk(), ""
    except OSError as error:
        return None, str(error)
