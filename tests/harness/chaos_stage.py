"""Where chaos plays: a control plane on PostgreSQL, machines of which each may be lost, and a small disk for checkpoints.

At its end nothing of it may be left.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from .control_plane import ControlPlane, until
from .disk import SmallDisk
from .machines import Machines, running_machines
from .patience import PATIENCE_S
from .postgres import Postgres


@dataclass
class ChaosStage:
    """`disk` is None where none can be mounted, for the reason `no_disk`."""

    plane: ControlPlane
    postgres: Postgres
    machines: Machines
    disk: SmallDisk | None
    no_disk: str = ""

    def processes(self) -> list[psutil.Process]:
        """Those of the control plane and of the machines in use."""
        return self.plane.processes() + self.machines.processes()

    def cleared(self) -> None:
        """End the control plane in order; nothing that belongs to it may live on, and nothing on the machines that were lost."""
        for node in list(self.machines.cut):
            self.machines.plug_in(node)
        assert self.plane.process is not None
        self.plane.process.terminate()
        self.plane.process.wait(PATIENCE_S)  # reaped here: `down` would wait for what stays a zombie of ours
        done = self.plane.run("down", "--force", timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        until(lambda: not self._left(), PATIENCE_S, f"the end of {self._left()}")

    def _left(self) -> list[psutil.Process]:
        return self.plane.processes() + self.machines.processes(lost=True)


@contextlib.contextmanager
def running_stage(postgres: Postgres) -> Iterator[ChaosStage]:
    """Whatever happens, nothing of it stays."""
    with contextlib.ExitStack() as stack:
        disk, why = _disk()
        if disk is not None:
            stack.callback(disk.end)
        machines = stack.enter_context(running_machines())  # they see the disk, and end before it
        url = postgres.empty_database()  # `up` migrates it
        stack.callback(postgres.drop, url)
        plane = ControlPlane()
        plane.given |= {"SHARDYARD_DATABASE_URL": url} | machines.settings
        plane.given |= {"SHARDYARD_STORAGE": str(disk.folder)} if disk else {}
        stack.callback(plane.end)
        plane.up()
        yield ChaosStage(plane, postgres, machines, disk, why)


def _disk() -> tuple[SmallDisk | None, str]:
    try:
        return SmallDisk(), ""
    except OSError as error:
        return None, str(error)
