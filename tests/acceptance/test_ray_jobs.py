"""Drivers of Ray as jobs: in a cluster of their own, with the logs, metrics, incidents and repairs of a gang. Nothing outlives them."""

from pathlib import Path

import psutil
import pytest
from harness.control_plane import ControlPlane, until
from harness.patience import PATIENCE_S
from harness.processes import actors
from harness.programs import lines, submitted

from shardyard.api import spec_file
from shardyard.service.schemas.job import Job

EXAMPLES = Path(__file__).parents[2] / "examples"
#: An actor on each CPU, with a child in a session of its own. The file `pids` has the processes that the driver sees.
ACTORS = """
import os, pathlib, subprocess, sys, time, psutil, ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1)
class Actor:
    def pids(self):
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return [os.getpid(), child.pid]
actors = [Actor.remote() for _ in range(2)]
seen = [pid for pids in ray.get([actor.pids.remote() for actor in actors]) for pid in pids]
raylet = psutil.Process(psutil.Process(seen[0]).ppid())
seen += [os.getpid(), raylet.pid, raylet.ppid()] + [one.pid for one in raylet.children()]
seen += [one.pid for one in psutil.Process(raylet.ppid()).children()]
pathlib.Path("pids.new").write_text(" ".join(str(pid) for pid in seen))
os.rename("pids.new", "pids")
"""
WAITS = "\ntime.sleep(600)\n"
pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]


def story(job: Job, printed: list[str]) -> str:
    """A failure, whole: under load it may not come again."""
    return "\n".join([job.message or "", *printed])


def started(root: Path) -> dict[str, psutil.Process]:
    """The driver's processes, once all are there: by their names and ids."""
    until((root / "pids").exists, PATIENCE_S, "the driver to start")
    found = {}
    for pid in (root / "pids").read_text().split():
        process = psutil.Process(int(pid))
        found[f"{process.name()}-{pid}"] = process
    assert {"raylet", "gcs_server", "sleep"} <= {name.rpartition("-")[0] for name in found}, found
    return found


def assert_ended(processes: dict[str, psutil.Process]) -> None:
    until(lambda: not any(one.is_running() for one in processes.values()), PATIENCE_S, f"{processes} to end")


def test_a_driver_runs_in_a_cluster_of_its_own(plane: ControlPlane) -> None:
    with plane.client() as client:
        job = client.wait(client.submit(EXAMPLES / "ray-job.yaml").id, timeout_s=PATIENCE_S)
        assert job.state == "succeeded", story(job, lines(client, job.id))
        assert "2 actors have counted to 4950" in lines(client, job.id)


@pytest.mark.parametrize("workers", [2, 4])
def test_what_a_script_reports_to_ray_train_are_metrics_of_its_job(
    plane: ControlPlane, workers: int, tmp_path: Path
) -> None:
    script = (EXAMPLES / "programs" / "with_ray_train.py").read_text()
    assert "num_workers=2" in script
    (tmp_path / "with_ray_train.py").write_text(script.replace("num_workers=2", f"num_workers={workers}"))
    spec = spec_file.load(EXAMPLES / "ray-train.yaml") | {"ranks": workers, "code": {"dir": str(tmp_path)}}
    with plane.client() as client:
        job = client.wait(client.submit(spec).id, timeout_s=2 * PATIENCE_S)
        assert job.state == "succeeded", story(job, lines(client, job.id))
        curves = client.logged_curves(job.id, ["loss", "epoch"]).series
        assert curves["epoch"].mean == [0, 1, 2] and curves["epoch"].last_step == 2
        losses = [value for value in curves["loss"].mean if value is not None]
        assert len(losses) == 3 and losses[0] > losses[1] > losses[2]
        shown = plane.run("metrics", job.id)
        assert shown.returncode == 0 and "loss" in shown.stdout, shown.stdout + shown.stderr
        assert any(plane.storage.joinpath(job.id).rglob("model.pt"))


def test_the_exception_of_a_driver_is_the_jobs(plane: ControlPlane, tmp_path: Path) -> None:
    with plane.client() as client:
        job = submitted(client, tmp_path, ACTORS + "raise KeyError('no such column')\n", ray=True)
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert (done.state, done.reason) == ("failed", "exception")
        incident = client.incidents(job.id).items[-1]
        assert "KeyError: 'no such column'" in incident.message and "train.py" in (incident.traceback or ""), incident


@pytest.mark.parametrize("victim", ["rank actor", "rank process", "raylet"])
def test_a_kill_leaves_no_process_and_the_driver_starts_again(plane: ControlPlane, tmp_path: Path, victim: str) -> None:
    script = f"{ACTORS}\nif os.environ['SHARDYARD_RESTART_COUNT'] == '0': time.sleep(600)\nprint('again')\n"
    with plane.client() as client:
        job = submitted(client, tmp_path, script, ray=True)
        found = started(tmp_path)
        until(lambda: client.job(job.id).state == "running", PATIENCE_S, "the job to run")
        (tmp_path / "pids").unlink()
        (raylet,) = (one for name, one in found.items() if name.startswith("raylet"))
        trainer = psutil.Process(raylet.ppid()).parent()
        killed = {"rank actor": actors(plane, "Rank")[0], "rank process": trainer, "raylet": raylet}[victim]
        assert killed is not None
        killed.kill()
        assert_ended(found)
        done = client.wait(job.id, timeout_s=2 * PATIENCE_S)
        assert done.state == "succeeded", story(done, lines(client, job.id))
        assert "again" in lines(client, job.id)
        incident = client.incidents(job.id).items[-1]
        assert incident.cause == "rank_lost", incident
        assert victim != "raylet" or ("raylet" in incident.message and incident.node is not None), incident


@pytest.mark.parametrize("how", ["cancel", "pause"])
def test_an_ended_job_leaves_no_process(plane: ControlPlane, tmp_path: Path, how: str) -> None:
    with plane.client() as client:
        job = submitted(client, tmp_path, ACTORS + WAITS, ray=True)
        found = started(tmp_path)
        until(lambda: client.job(job.id).state == "running", PATIENCE_S, "the job to run")
        getattr(client, how)(job.id)
        ended = {"cancel": "cancelled", "pause": "paused"}[how]
        until(lambda: client.job(job.id).state == ended, PATIENCE_S, f"the job to be {ended}")
        assert_ended(found)
        if how == "pause":
            client.cancel(job.id)


TRAINER = """
import os, pathlib, time, ray.train, torch, torch.distributed as dist
from ray.train.torch import TorchTrainer
def forgets():
    while True:
        time.sleep(1)
def loop():
    dist.all_reduce(torch.ones(2))
    for _ in range(2):  # the second returns once Ray Train looks after its workers: of one that dies before, it makes an error of its own
        ray.train.report({{"alive": 1}})
    {once}
    dist.all_reduce(torch.ones(3))
TorchTrainer(
    loop,
    scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=ray.train.RunConfig(
        storage_path=os.environ["SHARDYARD_JOB_STORAGE"], failure_config=ray.train.FailureConfig(max_failures=1)
    ),
).fit()
"""


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ('raise ValueError("once")', "worker 1 of Ray Train: ValueError: once"),
        ("os.kill(os.getpid(), 9)", "worker 1 of Ray Train: its process has died"),
    ],
    ids=["exception", "killed"],
)
def test_workers_that_ray_train_starts_again_are_an_incident(
    plane: ControlPlane, tmp_path: Path, fails: str, message: str
) -> None:
    once = f"""
    flag = pathlib.Path({str(tmp_path / "failed")!r})
    if ray.train.get_context().get_world_rank() == 1 and not flag.exists():
        flag.touch()
        {fails}
"""
    with plane.client() as client:
        job = submitted(client, tmp_path, TRAINER.format(once=once), ray=True)
        done = client.wait(job.id, timeout_s=3 * PATIENCE_S)
        printed = lines(client, job.id)
        assert (done.state, done.budgets.repairs.used, done.attempt) == ("succeeded", 0, 1), story(done, printed)
        (incident,) = client.incidents(job.id).items
        assert (incident.cause, incident.rank) == ("ray_worker_failed", 1) and incident.node, incident
        assert message in incident.message, incident
        assert ("train.py" in (incident.traceback or "")) == ("ValueError" in fails), incident
        assert incident.repair is not None and incident.repair.generation == 1, incident
        assert "Ray Train started all its workers again" in incident.summary, incident
        shown = plane.run("incidents", job.id)
        assert "worker 1 of Ray Train" in " ".join(shown.stdout.split()), shown.stdout + shown.stderr


#: Three reports of each start, the second with a checkpoint of two workers' files. The first start fails after it.
SAVER = """
import os, pathlib, tempfile, ray.train, torch
from ray.train.torch import TorchTrainer
def loop():
    own = ray.train.get_context().get_world_rank()
    found = ray.train.get_checkpoint()
    if found is None:
        begin = 0
    else:
        with found.as_directory() as folder:
            begin = int((pathlib.Path(folder) / f"worker-{own}").read_text())
    for epoch in range(begin, begin + 3):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / f"worker-{own}").write_text(str(epoch + 1))
            (pathlib.Path(folder) / "large").write_bytes(bytes(1 << 20))
            checkpoint = ray.train.Checkpoint.from_directory(folder) if epoch % 3 == 1 else None
            ray.train.report({"epoch": epoch, "begin": begin}, checkpoint=checkpoint)
    if found is None:
        raise ValueError("once")
TorchTrainer(
    loop,
    scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=ray.train.RunConfig(storage_path=os.environ["SHARDYARD_JOB_STORAGE"]NAME),
).fit()
"""


@pytest.mark.parametrize("name", ["", ", name='mine'"], ids=["unnamed", "named"])
def test_ray_trains_checkpoints_are_the_jobs(plane: ControlPlane, tmp_path: Path, name: str) -> None:
    """A job that is tried again continues from the newest, whether Ray Train finds its run again by name or not."""
    with plane.client() as client:
        script = SAVER.replace("NAME", name)
        job = submitted(client, tmp_path, script, ray=True, policy={"max_retries": 1}, checkpoint={"keep": 1})
        done = client.wait(job.id, timeout_s=4 * PATIENCE_S)
        assert (done.state, done.attempt) == ("succeeded", 2), story(done, lines(client, job.id))
        begin = client.logged_curves(job.id, ["begin"]).series["begin"]
        assert begin.last_step == 4 and begin.mean == [0, 0, 2, 2, 2], begin
        (newest,) = [one for one in client.checkpoints(job.id).items if one.state == "present"]
        assert newest.step == 4, newest
        verified = plane.run("checkpoints", job.id, "--verify")
        assert verified.returncode == 0 and "step-00000004" in verified.stdout, verified.stdout + verified.stderr
        assert [one.path for one in client.checkpoint_files(job.id, 4).items] == ["large", "worker-0", "worker-1"]
        folder = plane.storage / job.id
        linked = [file for file in folder.glob("step-*/*large") if file.stat().st_nlink > 1]
        assert len(linked) == 1, "the content is stored twice"
        kept = [one for one in folder.rglob("checkpoint_*") if one.is_dir()]
        assert len(kept) == 1, kept
        continued = submitted(client, tmp_path, script, ray=True, resume_from=job.id)
        done = client.wait(continued.id, timeout_s=3 * PATIENCE_S)
        assert done.state == "succeeded", story(done, lines(client, continued.id))
        begin = client.logged_curves(continued.id, ["begin"]).series["begin"]
        assert begin.last_step == 7 and begin.mean == [5, 5, 5], begin


def test_a_hang_of_ray_trains_workers_is_explained(plane: ControlPlane, tmp_path: Path) -> None:
    once = """
    if ray.train.get_context().get_world_rank() == 1 and os.environ["SHARDYARD_RESTART_COUNT"] == "0":
        forgets()
"""
    with plane.client() as client:
        job = submitted(client, tmp_path, TRAINER.format(once=once), ray=True, policy={"hang_timeout_s": 20})
        done = client.wait(job.id, timeout_s=4 * PATIENCE_S)
        assert done.state == "succeeded", story(done, lines(client, job.id))
        (incident,) = client.incidents(job.id).items
        assert (incident.cause, incident.rank) == ("hang", 1), incident
        assert "forgets" in incident.message and "all_reduce 2 of the world group" in incident.message, incident
        driver = [stack for stack in incident.stacks if 0 in stack.ranks and "train.py" in str(stack.stack)]
        assert any("in fit" in str(stack.stack) for stack in driver), incident.stacks
