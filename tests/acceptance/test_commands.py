"""Jobs that run a program of the user's own: a script for torchrun, unchanged, with the gang's logs, incidents and repairs."""

import json
import random
import re
import sys
from pathlib import Path

import psutil
import pytest
from harness.control_plane import ControlPlane, until
from harness.patience import PATIENCE_S
from harness.programs import alone, lines, submitted

from shardyard.api import spec_file
from shardyard.api.client import ApiError, Client
from shardyard.service.schemas.incident import Incident

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Torch's tutorial in short: gradients are averaged over the ranks, and each says the loss.
DDP = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(5):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4) * (dist.get_rank() + 1)).square().mean()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss.item():.4f}")
dist.destroy_process_group()
"""


def test_a_script_for_torchrun_is_a_job(plane: ControlPlane, tmp_path: Path) -> None:
    with plane.client() as client:
        job = submitted(client, tmp_path, DDP)
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert done.state == "succeeded", done.message
        assert (done.layout, done.world_size, done.progress) == ("2 ranks", 2, None)
        printed = lines(client, job.id)
        for rank in range(2):
            assert any(line.startswith(f"rank {rank} of 2: loss ") for line in printed), printed
        assert client.incidents(job.id).items == []
        assert [span.state for span in client.timeline(job.id).spans].count("running") == 1
        assert "runs a command" in (client.resources(job.id).reason or "")
        memory, nodes = client.system(job.id, "rank/memory"), client.system(job.id, "node/memory_used")
        assert [curve.rank for curve in memory.curves] == [0, 1]
        assert [curve.node for curve in nodes.curves] == [client.nodes()[0].id]
        example = client.wait(client.submit(EXAMPLES / "command.yaml").id, timeout_s=PATIENCE_S)
        assert (example.state, "rank 1 of 2: the ranks' sum is 1" in lines(client, example.id)) == ("succeeded", True)
        shown = plane.run("show", job.id)
        assert shown.returncode == 0 and "2 ranks" in shown.stdout, shown.stderr


def test_a_failing_rank_is_named_with_its_traceback(plane: ControlPlane, tmp_path: Path) -> None:
    script = DDP.replace(
        "    optimizer.step()", "    optimizer.step()\n    if dist.get_rank() == 1: raise KeyError('no such column')"
    )
    with plane.client() as client:
        job = client.wait(submitted(client, tmp_path, script).id, timeout_s=PATIENCE_S)
        assert (job.state, job.reason) == ("failed", "exception")
        assert "rank 1: KeyError: 'no such column'" in (job.message or "")
        incident = client.incidents(job.id).items[-1]
        assert incident.rank == 1 and "train.py" in (incident.traceback or ""), incident
        command = "python -c 'import sys; sys.exit(\"no such column\")'"
        exited = client.wait(client.submit({"name": "exits", "command": command}).id, timeout_s=PATIENCE_S)
        assert "exited with status 1; the last line of its standard error: no such column" in (exited.message or "")


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_failed_connection_of_the_program_is_its_exception(plane: ControlPlane, tmp_path: Path, ranks: int) -> None:
    """It is no lost rank: nothing is repaired, and no restart is used. The other rank waits in a collective."""
    script = """
import socket, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == dist.get_world_size() - 1:
    socket.create_connection(("127.0.0.1", 1))
dist.barrier()
"""
    with plane.client() as client:
        job = client.wait(submitted(client, tmp_path, script, ranks=ranks).id, timeout_s=PATIENCE_S)
        assert (job.state, job.reason, job.attempt) == ("failed", "exception", 1)
        assert [(one.cause, one.rank) for one in client.incidents(job.id).items] == [("exception", ranks - 1)]


def test_a_killed_rank_is_replaced_and_the_program_starts_again(plane: ControlPlane, tmp_path: Path) -> None:
    """The program knows by torchrun's variable that it was started again, and continues from what it saved itself."""
    script = """
import os, pathlib, time
pathlib.Path(f"{os.environ['RANK']}.pid").write_text(str(os.getpid()))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(600)
print("continues", flush=True)
"""
    with plane.client() as client:
        job = submitted(client, tmp_path, script)
        until(lambda: all((tmp_path / f"{rank}.pid").exists() for rank in range(2)), PATIENCE_S, "both ranks to start")
        until(lambda: client.job(job.id).state == "running", PATIENCE_S, "the job to run")
        psutil.Process(int((tmp_path / "1.pid").read_text())).kill()
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert done.state == "succeeded", done.message
        assert (done.attempt, done.budgets.repairs.used) == (1, 1)
        incident = client.incidents(job.id).items[-1]
        assert (incident.cause, incident.rank) == ("rank_lost", 1) and "SIGKILL" in incident.message
        assert lines(client, job.id).count("continues") == 2


def hung(client: Client, folder: Path, script: str) -> tuple[str, Incident]:
    """A job that succeeded after one hang, for which rank 1 was named; its id and the incident.

    Where other processes share the machine, its start takes longer, too.
    """
    job = submitted(client, folder, script, policy={"hang_timeout_s": PATIENCE_S / 12}).id
    done = client.wait(job, timeout_s=2 * PATIENCE_S)
    assert done.state == "succeeded", done.message
    incidents = client.incidents(job).items
    assert [(one.cause, one.rank) for one in incidents] == [("hang", 1)], incidents
    return job, incidents[0]


@pytest.mark.full
def test_a_hang_of_a_plain_script_is_explained(plane: ControlPlane, tmp_path: Path) -> None:
    """Rank 1 forgets a collective; the incident names it, the collective, and the line at which it is. Started again, it does not."""
    script = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
def forgets():
    while True:
        time.sleep(1)
if dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    forgets()
dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
"""
    with plane.client() as client:
        job, incident = hung(client, tmp_path, script)
        assert "forgets" in incident.message and "all_reduce 2 of the world group (ranks 0, 1)" in incident.message, (
            incident.message
        )
        memory = client.system(job, "rank/memory").curves
        largest = [max(value or 0 for value in curve.high or curve.mean) for curve in memory]
        assert len(largest) == 2 and min(largest) > 10 << 20, "of the program, not of the trainer process alone"


@pytest.mark.full
def test_a_hang_of_a_script_with_ddp_is_explained(plane: ControlPlane, tmp_path: Path) -> None:
    """Rank 1 does not come to the backward pass, in which rank 0 waits for the all-reduce of DistributedDataParallel."""
    script = """
import os, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
def forgets():
    while True:
        time.sleep(1)
for step in range(3):
    loss = model(torch.ones(2, 4)).sum()
    if step == 1 and dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        forgets()
    loss.backward()
dist.destroy_process_group()
"""
    with plane.client() as client:
        _, incident = hung(client, tmp_path, script)
        assert "forgets" in incident.message, incident.message
        assert re.search(r"all_reduce \d+ of the world group \(ranks 0, 1\)", incident.message), incident.message
        assert any("backward" in str(one.stack) for one in incident.stacks if 0 in one.ranks), incident.stacks


def test_a_cancelled_program_gets_sigterm_and_leaves_no_process(plane: ControlPlane, tmp_path: Path) -> None:
    """Also a process that has left its session, as those that torchrun starts, ends with the job."""
    script = """
import pathlib, signal, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("child").write_text(str(child.pid))
def on_term(*_):
    pathlib.Path("terminated").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, on_term)
pathlib.Path("ready").touch()
time.sleep(600)
"""

    def terminated(folder: Path) -> bool:
        """Whether a program that is cancelled has handled SIGTERM."""
        folder.mkdir()
        job = submitted(client, folder, script, ranks=1)
        until((folder / "ready").exists, PATIENCE_S, "the program to start")
        client.cancel(job.id)
        assert client.wait(job.id, timeout_s=PATIENCE_S).state == "cancelled"
        child = int((folder / "child").read_text())
        until(lambda: not psutil.pid_exists(child), PATIENCE_S, "the program's own child to end")
        return (folder / "terminated").exists()

    with plane.client() as client:
        # SIGKILL comes a second later. For so long the machine may stand still, but not each time.
        assert any(terminated(tmp_path / str(tried)) for tried in range(3))


@pytest.mark.full
def test_a_folder_is_uploaded_and_every_rank_runs_in_its_copy(plane: ControlPlane, tmp_path: Path) -> None:
    """A relative folder of the spec file; an upload that broke off continues; a second job with the same code sends nothing."""
    code = tmp_path / "code"
    (code / "pkg").mkdir(parents=True)
    (code / "pkg" / "text.py").write_text("TEXT = 'from the package'")
    (code / "big.bin").write_bytes(random.Random(0).randbytes(9 << 20))
    (code / "secret.env").write_text("not for others")
    script = "import os, pathlib, text; print(text.TEXT, pathlib.Path('../big.bin').stat().st_size, os.listdir('..'))"
    (code / "pkg" / "main.py").write_text(script)
    spec = tmp_path / "job.yaml"
    spec.write_text(
        f"{{name: shipped, command: [{sys.executable}, main.py], ranks: 2, code: {{dir: code, ignore: ['*.env']}}, cwd: pkg}}"
    )
    sent: list[int] = []

    class Cut(Exception):
        pass

    def cut(arrived: int, _: int) -> None:
        if arrived:
            raise Cut

    with plane.client() as client:
        with pytest.raises(Cut):
            client.submit(spec, on_upload=cut)
        job = client.wait(
            client.submit(spec, on_upload=lambda arrived, _: sent.append(arrived)).id, timeout_s=PATIENCE_S
        )
        assert job.state == "succeeded", job.message
        assert [part // (4 << 20) for part in sent] == [1, 2]
        printed = lines(client, job.id)
        assert len([line for line in printed if line.startswith("from the package 9437184 ")]) == 2, printed
        assert not any("secret" in line for line in printed)
        again = client.submit(spec, on_upload=lambda *_: pytest.fail("a part was sent again"))
        assert again.spec["code"]["archive"] == job.spec["code"]["archive"]
        shown = plane.run("code", job.id, "--json")
        assert json.loads(shown.stdout)["files"] == 3, shown.stderr
        assert client.wait(again.id, timeout_s=PATIENCE_S).state == "succeeded"


@pytest.mark.full
def test_what_a_program_logs_becomes_curves(plane: ControlPlane, tmp_path: Path) -> None:
    """By `shardyard.log` on two ranks, by lines of JSON, and again after a restart, which replaces what it trains again."""
    script = """
import json, os, pathlib, signal, time, shardyard
rank, again = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
for step in range(3 if again else 0, 6):
    shardyard.log({"loss": step + 10 * rank + (100 if again else 0)}, step=step)
    shardyard.log({"seen": step}, step=step, per_rank=True)
if rank == 1:
    print(json.dumps({"shardyard": {"printed": 0.5}, "step": 5}), flush=True)
if not again:
    while not pathlib.Path("seen").exists():
        time.sleep(0.1)
    time.sleep(0 if rank else 600)
    os.kill(os.getpid(), signal.SIGKILL)
"""

    def means(job: str, *names: str) -> dict[str, list[float | None]]:
        return {name: curve.mean for name, curve in client.logged_curves(job, list(names)).series.items()}

    with plane.client() as client:
        job = submitted(client, tmp_path, script)
        wanted = {"loss": [5.0, 6.0, 7.0, 8.0, 9.0, 10.0], "printed": [0.5]}
        until(lambda: means(job.id, *wanted) == wanted, PATIENCE_S, "the values of both ranks")
        (tmp_path / "seen").touch()
        job = client.wait(job.id, timeout_s=PATIENCE_S)
        assert job.state == "succeeded", job.message
        listed = client.logged_metrics(job.id).items
        assert [one.name for one in listed] == ["loss", "printed", "seen/rank0", "seen/rank1"]
        curve = client.logged_curves(job.id, "loss").series["loss"]
        assert (curve.starts, curve.mean) == (list(range(6)), [5.0, 6.0, 7.0, 108.0, 109.0, 110.0])
        assert curve.low is not None and curve.low[:4] == [0.0, 1.0, 2.0, 103.0]
        frame = client.logged_curves(job.id, ["seen/rank1", "printed"]).to_pandas()
        assert list(frame["seen/rank1"]) == [0, 1, 2, 3, 4, 5] and frame["printed"][5] == 0.5
        shown = plane.run("metrics", job.id, "loss")
        assert shown.stdout.splitlines()[:2] == ["step\tloss", "0\t5.0"], shown.stderr
        assert "every step" in plane.run("metrics", job.id).stdout
        assert [one.step for one in client.incidents(job.id).items] == [5]


@pytest.mark.full
def test_numbers_of_mlflow_and_tensorboard_become_curves(plane: ControlPlane, tmp_path: Path) -> None:
    """Of two ranks that share a folder of event files; what they log again after a restart replaces what they logged before."""
    script = """
import mlflow, os, pathlib, signal, time
from torch.utils.tensorboard import SummaryWriter
rank, again = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
mlflow.set_experiment("mine")
mlflow.start_run()
mlflow.log_param("lr", 0.1)
mlflow.log_text(f"of rank {rank}", f"notes/{rank}.txt")
mlflow.log_dict({"again": again}, "settings.json")
class Twice(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [2 * one for one in model_input]
if rank == 0:
    mlflow.pyfunc.log_model(name="net", python_model=Twice(), pip_requirements=["mlflow-skinny"])
with SummaryWriter("runs") as train, SummaryWriter("runs/eval") as evaluation:
    for step in range(3 if again else 0, 6):
        value = step + 10 * rank + (100 if again else 0)
        mlflow.log_metric("mlflow loss", value, step=step)
        train.add_scalar("loss", value, step)
        evaluation.add_scalar("loss", value / 2, step, new_style=True)
if not again:
    while not pathlib.Path("seen").exists():
        time.sleep(0.1)
    time.sleep(0 if rank else 600)
    with SummaryWriter("runs") as writer:
        writer.add_scalar("before the end", 1, 0)
    mlflow.log_metric("at the end", 1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    scales = {"mlflow loss": 1, "loss": 1, "eval/loss": 2}

    def are(job: str, means: list[int]) -> bool:
        curves = client.logged_curves(job, list(scales)).series
        return all(
            name in curves and curves[name].mean == [mean / scale for mean in means] for name, scale in scales.items()
        )

    with plane.client() as client:
        job = submitted(client, tmp_path, script, tensorboard="runs")
        until(lambda: are(job.id, [5, 6, 7, 8, 9, 10]), 2 * PATIENCE_S, "the values of both ranks")
        (tmp_path / "seen").touch()
        job = client.wait(job.id, timeout_s=2 * PATIENCE_S)
        assert (job.state, job.budgets.repairs.used) == ("succeeded", 1), job.message
        assert are(job.id, [5, 6, 7, 108, 109, 110]), client.logged_curves(job.id, list(scales)).series
        assert {"at the end", "before the end"} < {one.name for one in client.logged_metrics(job.id).items}
        assert lines(client, job.id).count("MLflow parameter lr = 0.1") == 4
        model = ["MLmodel", "conda.yaml", "python_env.yaml", "python_model.pkl", "requirements.txt"]
        files = [*(f"models/net/{name}" for name in model), "notes/0.txt", "notes/1.txt", "settings.json"]
        assert [one.name for one in client.artifacts(job.id).items] == files
        place = client.download_artifact(job.id, "models/net/MLmodel", tmp_path / "MLmodel")
        assert "python_model.pkl" in place.read_text()
        place = client.download_artifact(job.id, "settings.json", tmp_path / "settings.json")
        assert json.loads(place.read_text()) == {"again": True}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["ddp", "fsdp2", "accelerate", "accelerate-images"])
@pytest.mark.full
def test_scripts_of_other_libraries_are_jobs_unchanged(plane: ControlPlane, name: str, ranks: int) -> None:
    """Every loss is that of one process without Shardyard, to the last of twelve digits."""
    spec = {**spec_file.load(EXAMPLES / f"{name}.yaml"), "ranks": ranks}
    with plane.client() as client:
        job = client.wait(client.submit(spec).id, timeout_s=PATIENCE_S)
        assert job.state == "succeeded", job.message
        printed, incidents = lines(client, job.id), client.incidents(job.id).items
    assert incidents == [], printed
    losses = [line for line in printed if ": loss " in line]
    wanted = [line for line in alone(spec) if ": loss " in line]
    assert len(wanted) >= 3 and losses == wanted


@pytest.mark.full
def test_a_killed_script_continues_from_its_own_snapshot(plane: ControlPlane, tmp_path: Path) -> None:
    """Rank 1 is killed between two epochs; the losses after it are those of a run without a fault."""
    spec = spec_file.load(EXAMPLES / "ddp.yaml")
    spec["command"] = [*spec["command"][:2], "--epochs", "150", "--snapshot", str(tmp_path / "snapshot.pt")]
    with plane.client() as client:
        job = client.submit(spec)
        until((tmp_path / "snapshot.pt").exists, PATIENCE_S, "the first snapshot")
        client.inject_fault(job.id, "kill-rank", rank=1)
        done = client.wait(job.id, timeout_s=2 * PATIENCE_S)
        assert done.state == "succeeded", done.message
        assert done.budgets.repairs.used == 1
        seen = dict(line.split(": loss ") for line in lines(client, job.id) if ": loss " in line)
    assert len(seen) == 150 and seen["epoch 5"] == "2.911381995694"


@pytest.mark.full
def test_a_script_of_accelerate_continues_from_its_own_states(plane: ControlPlane, tmp_path: Path) -> None:
    """Saved by two ranks. What it prints then is that of one process that was never interrupted, evaluation included."""
    spec = spec_file.load(EXAMPLES / "accelerate-images.yaml")
    printed: list[str] = []
    with plane.client() as client:
        for epochs in ("2", "4"):
            spec["command"] = [*spec["command"][:2], "--epochs", epochs, "--states", str(tmp_path / "states")]
            job = client.wait(client.submit(spec).id, timeout_s=2 * PATIENCE_S)
            assert job.state == "succeeded", job.message
            printed += [line for line in lines(client, job.id) if ": loss " in line]
    assert printed == [line for line in alone({**spec, "command": spec["command"][:4]}) if ": loss " in line]
    assert printed[-1].startswith("epoch 4: ") and "of 100 images right" in printed[-1]


#: Each rank saves its part of each step. Rank 1 is killed before it saves step 6, so that this one stays torn.
CHECKPOINTS = """
import os, shardyard, signal, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, last = dist.get_rank(), int(sys.argv[1])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1, dtype=torch.float64))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
found, first = shardyard.resume(), 0
if found is not None:
    state, first = found.load(), found.step
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
print(f"rank {rank} begins after step {first}", flush=True)
for step in range(first + 1, last + 1):
    data = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(10 * step + rank))
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
    if step == 6 and first == 0 and rank == 1 and "die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    shardyard.checkpoint({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, step, ranks="all")
print(f"rank {rank} has {model.module.weight.tolist()}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.full
def test_a_killed_script_continues_from_its_newest_checkpoint(plane: ControlPlane, tmp_path: Path) -> None:
    """Its weights in the end are those of a run without a fault, and another job continues from there."""
    with plane.client() as client:
        ran: list[tuple[str, list[str]]] = []
        for more in (["8"], ["8", "die"]):
            command = [sys.executable, "train.py", *more]
            done = client.wait(submitted(client, tmp_path, CHECKPOINTS, command=command).id, timeout_s=PATIENCE_S)
            assert (done.state, done.attempt) == ("succeeded", 1), done.message
            ran.append((done.id, lines(client, done.id)))
        (_, whole), (killed, repaired) = ran
        assert sorted(line for line in repaired if "has" in line) == sorted(line for line in whole if "has" in line)
        assert {"rank 0 begins after step 5", "rank 1 begins after step 5"} <= set(repaired), repaired
        found = client.checkpoints(killed).items
        assert [(one.step, one.state) for one in found[:3]] == [(8, "present"), (7, "present"), (6, "deleted")]
        assert client.finished(client.verify_checkpoint(killed, found[0].position)).verified is not None
        with pytest.raises(ApiError, match="program's own files"):
            client.export_checkpoint(killed, found[0].position)
        then = {"command": [sys.executable, "train.py", "9"], "resume_from": killed, "checkpoint": {"keep": 1}}
        child = client.wait(submitted(client, tmp_path, CHECKPOINTS, **then).id, timeout_s=PATIENCE_S)
        assert (child.state, child.parent) == ("succeeded", killed), child.message
        assert "rank 1 begins after step 8" in lines(client, child.id)
        assert plane.run("checkpoints", child.id, "--verify").returncode == 0
        example = client.wait(client.submit(EXAMPLES / "checkpoints.yaml").id, timeout_s=PATIENCE_S)
        assert example.state == "succeeded", example.message
        states = {one.step: one.state for one in client.checkpoints(example.id).items}
        assert states == {50: "deleted", 100: "deleted", 150: "present", 200: "present"}


@pytest.mark.full
def test_torchrun_is_a_command_of_its_node(plane: ControlPlane, tmp_path: Path) -> None:
    """Killed once, it starts again; then rank 3 raises, and the incident is that of rank 3."""
    script = """
import os, pathlib, signal, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()}: {total.item():.0f}", flush=True)
dist.barrier()
if dist.get_rank() == 2 and os.environ["SHARDYARD_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
if dist.get_rank() == 3:
    dist.barrier() if os.environ["SHARDYARD_RESTART_COUNT"] == "0" else None
    raise KeyError("no such column")
dist.barrier()
"""
    with plane.client() as client:
        more = {"command_per": "node", "ranks_per_node": 4, "command": ["torchrun", "train.py"]}
        job = client.wait(submitted(client, tmp_path, script, ranks=4, **more).id, timeout_s=2 * PATIENCE_S)
        assert (job.state, job.reason) == ("failed", "exception"), job.message
        killed, raised = client.incidents(job.id).items
        assert killed.cause == "rank_lost" and "SIGKILL" in killed.message
        assert (raised.cause, raised.rank) == ("exception", 3) and "no such column" in raised.message
        assert {f"rank {rank}: 4" for rank in range(4)} <= set(lines(client, job.id))
