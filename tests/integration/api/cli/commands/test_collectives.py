"""`shardyard collectives --submit`: a job with the spec's ranks and resources, which times the groups of its layout."""

import json
from pathlib import Path

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client

pytestmark = pytest.mark.usefixtures("asks_the_plane")

SPEC = """\
name: two
train:
  layout: { data: 2, tensor: 2 }
  steps: 1
  global_batch: 2
resources: { device: cpu, env: { NCCL_DEBUG: INFO } }
"""


def test_a_job_times_the_groups_of_a_layout(client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.yaml").write_text(SPEC)
    assert run(["collectives", "--spec", str(tmp_path / "two.yaml"), "--sizes", "4KiB", "--submit"]) == 0
    printed = capsys.readouterr()
    job = client.job(printed.out.strip())
    assert "shardyard logs" in printed.err
    assert (job.name, job.world_size, job.spec["ranks_per_node"]) == ("collectives", 4, 2)
    assert job.spec["resources"]["env"] == {"NCCL_DEBUG": "INFO"} and job.spec["resources"]["device"] == "cpu"
    command = job.spec["command"]
    assert command[:3] == ["python", "-m", "shardyard.workers.collectives"]
    assert json.loads(command[command.index("--layout") + 1])["tensor"] == 2
    assert command[command.index("--sizes") + 1] == "4096"
