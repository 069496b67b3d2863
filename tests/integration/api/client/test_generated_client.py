"""A client that a generator makes of our description: it has every operation and every answer, and it submits a job."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardyard.api.client import Client
from shardyard.api.openapi import document

from ..conftest import SPEC, TOKEN, Plane

PACKAGE = "generated_shardyard_client"


@pytest.fixture
def described(plane: Plane) -> dict[str, Any]:
    return document(plane.app)


@pytest.fixture
def generated(described: dict[str, Any], tmp_path: Path) -> Iterator[str]:
    """The package, which can be imported; what the generator complains of fails the test."""
    (tmp_path / "openapi.json").write_text(json.dumps(described))
    (tmp_path / "config.yaml").write_text("post_hooks: []")  # not formatted
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none"]
    command += ["--config", "config.yaml", "--output-path", PACKAGE, "--fail-on-warning"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert (made.returncode, made.stdout.strip(), made.stderr) == (0, f"Generating {PACKAGE}", "")
    sys.path.insert(0, str(tmp_path))
    try:
        yield PACKAGE
    finally:
        sys.path.remove(str(tmp_path))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def test_a_generated_client_has_everything_and_submits_a_job(
    generated: str, described: dict[str, Any], plane: Plane, client: Client, tmp_path: Path
) -> None:
    modules = {path.stem for path in (tmp_path / generated / "api").glob("*/*.py")}
    names = {
        re.sub(r"(?<!^)(?=[A-Z])", "_", operation["operationId"]).lower()
        for methods in described["paths"].values()
        for operation in methods.values()
    }
    assert names <= modules
    package = importlib.import_module(generated)
    models = importlib.import_module(f"{generated}.models")
    submit_job, preview_job, list_jobs, get_job = (
        importlib.import_module(f"{generated}.api.jobs.{name}")
        for name in ("submit_job", "preview_job", "list_jobs", "get_job")
    )
    wanted = models.JobSpec.from_dict({**SPEC, "policy": {"straggler": None, "loss_spike": {"window": 64}}})
    with package.AuthenticatedClient(plane.url, token=TOKEN) as http:
        assert preview_job.sync(client=http, body=wanted).world_size == 2
        job = submit_job.sync(client=http, body=wanted)
        assert isinstance(job, models.Job) and job.labels.to_dict() == SPEC["labels"]
        assert [each.id for each in list_jobs.sync(client=http).items] == [job.id]
        refused = get_job.sync(job="absent", client=http)
        assert isinstance(refused, models.Problem) and refused.code == "job_not_found"
    policy = client.job(job.id).spec["policy"]
    assert policy["straggler"] is None and policy["loss_spike"]["window"] == 64
    with package.Client(plane.url) as anonymous:
        assert submit_job.sync(client=anonymous, body=wanted).code == "unauthenticated"
