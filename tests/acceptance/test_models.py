"""A checkpoint of a running job is pinned, named, taken home and continued from; saves and deletions leave it alone."""

from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import ControlPlane, endless, trained, until
from harness.patience import PATIENCE_S

from shardyard.api.client import ApiError
from shardyard.workers.checkpoint.inspect import inspect_checkpoint

EACH: dict[str, Any] = {"layout": {"data": 2}, "checkpoint": {"every": 1, "keep": 1}}


@pytest.mark.full
def test_a_version_outlives_the_saves_of_its_job(plane: ControlPlane, tmp_path: Path) -> None:
    with plane.client() as client:
        job = client.submit(endless("named", **EACH))
        trained(client, job.id, 2)
        client.pause(job.id)  # so that no save removes its checkpoint before it is pinned
        until(lambda: client.job(job.id).state == "paused", PATIENCE_S, "the job to be paused")
        step = client.checkpoints(job.id).items[0].step
        made = plane.run("models", "poet", "--create", f"{job.id}@{step}", "--set-alias", "production")
        assert made.returncode == 0, made.stderr
        until(lambda: client.model_version("poet").pinned, PATIENCE_S, "the cluster to pin it")
        client.resume(job.id)
        trained(client, job.id, 3, attempt=2)
        client.cancel(job.id)
        client.wait(job.id, timeout_s=PATIENCE_S)
        present = [one.step for one in client.checkpoints(job.id, limit=1000).items if one.state == "present"]
        assert len(present) == 2 and step in present, present
        version = client.model_version("poet", "production")
        assert version.state == "present" and version.digest is not None and "loss" in version.metrics

        taken = plane.run("models", "poet@production", "--download", str(tmp_path / "taken"))
        assert taken.returncode == 0, taken.stderr
        assert inspect_checkpoint(str(tmp_path / "taken"), verify=True).verdict == "valid"
        exported = plane.run("export", "models/poet@production", "--on-cluster", "--dtype", "bf16")
        assert exported.returncode == 0 and f"export-{step:08d}-bf16" in exported.stdout, exported.stderr

        child = client.submit(endless("child", resume_from="models/poet@production", **EACH))
        assert child.spec["train"]["resume_from"] == "models/poet@1"
        trained(client, child.id, step + 1)
        client.cancel(child.id)
        client.wait(child.id, timeout_s=PATIENCE_S)
        assert client.metrics(child.id).points[0].step == step + 1

        with pytest.raises(ApiError, match="poet@1"):
            client.delete(job.id)
        assert plane.run("checkpoints", job.id, "--unpin", str(step)).returncode == 1
        client.remove_alias("poet", "production")
        client.delete_version("poet", 1)
        unpinned = plane.run("checkpoints", job.id, "--unpin", str(step))
        assert unpinned.returncode == 0 and "pinned" not in unpinned.stdout, unpinned.stderr
        client.delete(job.id)
