"""Programs with packages of their own, which their nodes install."""

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import conda, packages
from harness.control_plane import ControlPlane, until
from harness.patience import PATIENCE_S
from harness.programs import alone, lines, submitted

from shardyard.api import spec_file

EXAMPLES = Path(__file__).parents[2] / "examples"


def of_packages(index: Path, *requirements: str, **more: Any) -> dict[str, Any]:
    """The part of a spec that asks for packages from the folder `index`."""
    return {"env": {"python": list(requirements), **more}, "resources": {"env": packages.variables(index)}}


@pytest.mark.full
def test_a_program_has_the_packages_that_it_asks_for(plane: ControlPlane, tmp_path: Path) -> None:
    """Beside the torch of the nodes; one that cannot be installed fails the job at once, whatever its budgets."""
    index, code = tmp_path / "index", tmp_path / "code"
    packages.wheel(index, "alpha", code="VALUE = 7")
    code.mkdir()
    (code / "requirements.txt").write_text("alpha\n")
    (code / "train.py").write_text(
        "import sys, alpha, torch, torch.distributed as dist\ndist.init_process_group('gloo')\ntotal = torch.ones(1)\n"
        "dist.all_reduce(total)\nprint(sys.prefix, alpha.VALUE, total.item(), flush=True)\ndist.destroy_process_group()\n"
    )
    spec = {"name": "packages", "command": ["python", "train.py"], "ranks": 2, "code": {"dir": str(code)}}
    asked = {**of_packages(index), "env": {"python": "requirements.txt", "inherit": True}}
    with plane.client() as client:
        job = client.wait(client.submit({**spec, **asked}).id, timeout_s=PATIENCE_S)
        assert (job.state, client.incidents(job.id).items) == ("succeeded", [])
        first, second = (line.split() for line in lines(client, job.id) if line.endswith(" 7 2.0"))
        assert first == second and "/environments/" in first[0]
        assert lines(client, job.id).count("shardyard: the program starts") == 2
        more = {"command": ["true"], "policy": {"max_retries": 3}}
        failed = client.wait(submitted(client, tmp_path, "", **of_packages(index, "beta"), **more).id, PATIENCE_S)
        assert (failed.state, failed.reason, failed.attempt) == ("failed", "environment_not_built", 1)
        said = "the environment cannot be built: No solution found when resolving dependencies: "
        assert said + "Because beta was not found in the package registry" in (failed.message or "")
        assert len(client.incidents(failed.id).items) == 1


@pytest.mark.full
def test_a_program_runs_in_an_environment_of_conda(plane: ControlPlane, tmp_path: Path) -> None:
    """Built once for two ranks, by a stand-in for the tool, which only the second job finds on its PATH."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "environment.yml").write_text("channels: [conda-forge]\ndependencies: [python=3.11, numpy]\n")
    (code / "train.py").write_text("import os, sys\nprint(sys.prefix, os.environ['CONDA_PREFIX'], flush=True)\n")
    calls = conda.stand_in(tmp_path / "bin", "conda")
    spec = {"name": "conda", "command": ["python", "train.py"], "ranks": 2, "code": {"dir": str(code)}}
    spec |= {"env": {"conda": "environment.yml"}}
    with plane.client() as client:
        failed = client.wait(client.submit(spec).id, timeout_s=PATIENCE_S)
        assert (failed.state, failed.reason, failed.attempt) == ("failed", "environment_not_built", 1)
        assert "neither micromamba nor conda" in (failed.message or "")
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        job = client.wait(client.submit({**spec, "resources": {"env": {"PATH": path}}}).id, timeout_s=PATIENCE_S)
        assert (job.state, client.incidents(job.id).items) == ("succeeded", []), job.message
        first, second = (line.split() for line in lines(client, job.id) if "/environments/" in line)
        assert first == second and first[0] == first[1]
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.full
def test_torchrun_starts_the_python_of_the_environment(plane: ControlPlane, tmp_path: Path) -> None:
    """Also the torchrun that is inherited from the nodes' packages."""
    packages.wheel(tmp_path, "alpha", code="VALUE = 7")
    script = "import alpha, torch.distributed as dist\ndist.init_process_group('gloo')\nprint(dist.get_rank(), alpha.VALUE)\n"
    script += "dist.barrier()\n"  # a rank that leaves while another still connects to it ends that one
    script += "dist.destroy_process_group()\n"
    more = {"command": ["torchrun", "train.py"], "command_per": "node", "ranks_per_node": 2}
    with plane.client() as client:
        job = submitted(client, tmp_path, script, **more, **of_packages(tmp_path, "alpha", inherit=True))
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert done.state == "succeeded", done.message
        assert {"0 7", "1 7"} <= set(lines(client, job.id))


@pytest.mark.full
def test_two_jobs_of_one_environment_build_it_once(plane: ControlPlane, tmp_path: Path) -> None:
    """A long build is no hang. A third job that is cancelled while uv builds leaves no process and no environment."""
    packages.gated_source(tmp_path, "slow")
    packages.gated_source(tmp_path, "slower")
    script = "import slow, sys; print('in', sys.prefix)"
    more = {"command": ["python", "train.py"], "policy": {"hang_timeout_s": 1}, **of_packages(tmp_path, "slow")}
    with plane.client() as client:
        jobs = [submitted(client, tmp_path, script, ranks=1, **more) for _ in range(2)]
        waits = "waiting for another process on this node"
        until(lambda: any(waits in line for job in jobs for line in lines(client, job.id)), PATIENCE_S, "one to wait")
        (tmp_path / "slow.go").touch()
        for job in jobs:
            done = client.wait(job.id, timeout_s=PATIENCE_S)
            assert (done.state, client.incidents(job.id).items) == ("succeeded", [])
        printed = [line for job in jobs for line in lines(client, job.id)]
        assert [line.strip() for line in printed].count("+ slow==1.0") == 1, printed
        assert len({line for line in printed if line.startswith("in ")}) == 1
        job = submitted(client, tmp_path, script, ranks=1, **{**more, **of_packages(tmp_path, "slower")})
        until((tmp_path / "slower.started").exists, PATIENCE_S, "the build")
        client.cancel(job.id)
        assert client.wait(job.id, timeout_s=PATIENCE_S).state == "cancelled"
        backend = int((tmp_path / "slower.started").read_text())
        until(lambda: not psutil.pid_exists(backend), PATIENCE_S, "the build backend to end")
        assert "slower" not in str(list((plane.data / "cache" / "environments").glob("*/lib/*/site-packages/*")))


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("name", "package"), [("lightning", "lightning"), ("deepspeed", "deepspeed")])
def test_scripts_of_libraries_that_nodes_lack_are_jobs_unchanged(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, name: str, package: str, ranks: int
) -> None:
    """Every loss is that of one process without Shardyard, to the last digit that is printed."""
    compiled = tmp_path_factory.getbasetemp() / "torch_extensions"  # DeepSpeed compiles for a minute, once
    variables = {"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(compiled)}
    spec = {**spec_file.load(EXAMPLES / f"{name}.yaml"), "ranks": ranks, "resources": {"env": variables}}
    with plane.client() as client:
        job = client.wait(client.submit(spec).id, timeout_s=5 * PATIENCE_S)
        assert job.state == "succeeded", job.message
        losses = [line for line in lines(client, job.id) if ": loss " in line]
    [python] = (
        found
        for found in (plane.data / "cache" / "environments").glob("*/bin/python")
        if any(found.parents[1].glob(f"lib/*/site-packages/{package}"))
    )
    assert len(losses) >= 3 and losses == [line for line in alone(spec, python) if ": loss " in line]
