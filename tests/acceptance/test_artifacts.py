"""What two ranks log as files is stored with their job, once, also by a rank that starts again."""

import csv
from pathlib import Path

import pytest
from harness.control_plane import ControlPlane
from harness.patience import PATIENCE_S
from harness.programs import lines, submitted

SCRIPT = """
import os, pathlib, signal, time, numpy, shardyard
rank, again = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
folder = pathlib.Path(f"model-{rank}")
folder.mkdir(exist_ok=True)
(folder / "weights").write_bytes(bytes([rank]) * 100_000)
(folder / "link").unlink(missing_ok=True)
(folder / "link").symlink_to("/etc/passwd")
for step in range(3):
    shardyard.log_image(f"samples/{rank}", numpy.full((4, 4, 3), 50 * step + again, "uint8"), step=step)
    shardyard.log_table(f"errors/{rank}", ["step", "again"], [[step, again]], step=step)
shardyard.log_artifact(folder)
if rank == 1 and not again:
    os.kill(os.getpid(), signal.SIGKILL)
if not again:
    time.sleep(600)
"""


@pytest.mark.full
def test_files_of_two_ranks_are_stored_once_also_after_a_repair(plane: ControlPlane, tmp_path: Path) -> None:
    with plane.client() as client:
        job = client.wait(submitted(client, tmp_path, SCRIPT).id, timeout_s=PATIENCE_S)
        assert (job.state, job.attempt, job.budgets.repairs.used) == ("succeeded", 1, 1), job.message
        found = client.artifacts(job.id).items
        names = [(one.name, one.step) for one in found]
        assert len(names) == len(set(names)) == 14, names
        assert {name for name, step in names if step is None} == {"model-0/weights", "model-1/weights"}
        assert sum("is a link" in line for line in lines(client, job.id)) >= 2
        place = client.download_artifact(job.id, "errors/1", tmp_path / "errors.csv", step=2)
        assert list(csv.reader(place.read_text().splitlines())) == [["step", "again"], ["2", "True"]]
        done = plane.run("artifacts", job.id, "--all", "--to", str(tmp_path / "all"))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "all" / "model-1" / "weights").read_bytes() == bytes([1]) * 100_000
