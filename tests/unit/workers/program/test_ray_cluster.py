"""Drivers of Ray on two ranks: in a private cluster of one node or of two, which ends with the job, whatever ends first."""

import os
import re
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness.ranks import spawn

from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.parent_death import adopt_orphans
from shardyard.workers.program.launch import run_program
from shardyard.workers.program.preparation import ProgramFailed
from shardyard.workers.program.program import Program, RayShare
from shardyard.workers.program.ray_cluster import interpreter, reason, resources, variables
from shardyard.workers.trainer.instruments import Instruments

COORDS = RankAssignment(rank=0, world_size=2, local_rank=0, local_world_size=2, master_host="127.0.0.1", master_port=1)
SHARE = RayShare(object_store=80 << 20)
#: An actor on each CPU, which reads a file of the code's folder, and logs to MLflow. The file `pids` has the processes of Ray that the
#: driver sees, and of the actors.
ACTORS = """
import json, os, pathlib, sys, urllib.request, psutil, ray
def post(endpoint, **body):
    address = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/" + endpoint
    headers = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
    with urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1)
class Actor:
    def seen(self):
        import shardyard
        shardyard.log({"x": float(pathlib.Path("data.txt").read_text())}, step=0)
        run = post("runs/create", experiment_id="0", start_time=0)["run"]["info"]["run_id"]
        post("runs/log-metric", run_id=run, key="y", value=1.0, timestamp=1, step=1)
        return os.getpid(), ray.get_runtime_context().get_node_id()
actors = [Actor.remote() for _ in range(int(ray.cluster_resources()["CPU"]))]
seen = ray.get([actor.seen.remote() for actor in actors])
nodes = {node["NodeID"] for node in ray.nodes()}
assert {node for _, node in seen} == nodes, (seen, nodes)
raylets = [psutil.Process(pid).ppid() for pid, _ in seen]
pathlib.Path("pids").write_text(" ".join(str(pid) for pid in [*(pid for pid, _ in seen), *raylets]))
pathlib.Path("nodes").write_text(str(len(nodes)))
"""


def run(
    script: str, root: Path, nodes: int = 1, stop_when: str | None = None, ranks: int = 2, **changes: Any
) -> list[dict[str, Any]]:
    """Per rank the kinds of its events, the metrics in them, and how the program failed.

    `nodes`: 1, or 2 for a Ray node of each rank's own.
    """
    (root / "driver.py").write_text(script)
    (root / "data.txt").write_text("1")
    program = Program("a-job", (sys.executable, "driver.py"), cwd=str(root), per_node=True, ray=SHARE)
    found: list[dict[str, Any]] = spawn(_rank, ranks, replace(program, **changes).to_json(), nodes, stop_when)
    return found


def _rank(rank: int, world: int, port: int, program: dict[str, Any], nodes: int, stop_when: str | None) -> Any:
    import torch.distributed as dist

    os.setsid()
    adopt_orphans()
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    store = dist.TCPStore("127.0.0.1", port, None, is_master=False)
    host = _outer_address() if nodes > 1 else "127.0.0.1"
    listener = socket.socket()
    if rank == 0:
        listener.bind((host, 0))
        listener.listen(64)
        store.set("port", str(listener.getsockname()[1]))
    place = {"local_rank": rank, "local_world_size": world} if nodes == 1 else {"local_rank": 0, "node_rank": rank}
    coords = RankAssignment(
        rank=rank,
        world_size=world,
        master_host=host,
        master_port=int(store.get("port")),
        master_fd=listener.detach() if rank == 0 else None,
        nodes=nodes,
        **place,
    )
    events: list[str] = []
    names: set[str] = set()

    def emit(kind: str, data: dict[str, Any]) -> None:
        events.append(kind)
        names.update(re.sub(r"^run-\d+/", "", name) for block in data.get("blocks", ()) for name in block["names"])

    stop = lambda: stop_when is not None and Path(program["cwd"], stop_when).exists()  # noqa: E731
    instruments = Instruments(stop_request=lambda: StopRequest.STOP if stop() else StopRequest.NO)
    failed = kept = None
    try:
        kept = run_program(program, coords, emit, instruments)
    except ProgramFailed as error:
        failed = error.failed
    store.set(f"done/{rank}", "")
    store.wait([f"done/{other}" for other in range(world)])
    del kept
    return {"kinds": events, "failed": failed, "names": names}


def _outer_address() -> str:
    """The machine's address at which Ray listens if it is not on loopback; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def none_left(root: Path) -> bool:
    return not any(psutil.pid_exists(int(pid)) for pid in (root / "pids").read_text().split())


def test_a_driver_has_the_cpus_of_its_ranks_and_leaves_nothing(tmp_path: Path) -> None:
    first, second = run(ACTORS, tmp_path)
    assert (first["failed"], second["failed"]) == (None, None)
    assert (first["kinds"][0], set(first["kinds"][1:]), second["kinds"]) == ("program_started", {"metrics"}, [])
    assert first["names"] == {"x", "y"}
    assert len((tmp_path / "pids").read_text().split()) == 4 and none_left(tmp_path)


@pytest.mark.full
def test_each_node_of_the_gang_has_a_ray_node(tmp_path: Path) -> None:
    """Which takes what its workers log: by `shardyard.log`, to MLflow, and in event files of TensorBoard."""
    write = """
@ray.remote(num_cpus=0)
def writes():
    from torch.utils.tensorboard import SummaryWriter
    with SummaryWriter("runs") as writer:
        writer.add_scalar("z", 1.0, 1)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.get([writes.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes])
"""
    first, second = run(ACTORS + write, tmp_path, nodes=2, tensorboard="runs")
    assert (first["failed"], second["failed"]) == (None, None)
    assert (first["kinds"][0], {*first["kinds"][1:]}, {*second["kinds"]}) == (
        "program_started",
        {"metrics"},
        {"metrics"},
    )
    assert (first["names"], second["names"]) == ({"x", "y", "z"}, {"x", "y", "z"})
    assert (tmp_path / "nodes").read_text() == "2" and none_left(tmp_path)


@pytest.mark.full
def test_the_exception_of_a_task_is_the_cause(tmp_path: Path) -> None:
    task = """
@ray.remote(num_cpus=0)
def fails():
    raise ValueError("this is wrong")
ray.get(fails.remote())
"""
    first, second = run(ACTORS + task, tmp_path)
    failed = first["failed"]
    assert (failed.type, failed.message) == ("ValueError", "this is wrong")
    assert "in fails" in failed.traceback and "driver.py" in failed.traceback and "\x1b" not in failed.traceback
    assert second["failed"] is None and none_left(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("node", [0, 1])
def test_a_ray_node_that_dies_is_a_lost_rank(tmp_path: Path, node: int) -> None:
    """Whatever the driver says to it: its error follows from the node's death."""
    kill = f"""
head = ray.get_runtime_context().get_node_id()
(pid,) = {{psutil.Process(pid).ppid() for pid, at in seen if (at != head) == {bool(node)}}}
psutil.Process(pid).kill()
ray.get([Actor.options(num_cpus=0).remote().seen.remote() for _ in range(100)])
import time
time.sleep(600)
"""
    found = run(ACTORS + kill, tmp_path, nodes=2)
    failed = found[node]["failed"]
    assert (failed.type, failed.facts.cause) == ("RayNodeFailed", "rank_lost")
    assert "has ended before the driver: raylet" in failed.message, failed.message
    others = found[1 - node]["failed"]
    assert others is None or (others.facts.cause == "rank_lost" and "another node has ended" in others.message)
    assert none_left(tmp_path)


@pytest.mark.full
def test_a_driver_that_is_to_stop_gets_sigterm_before_its_cluster_ends(tmp_path: Path) -> None:
    wait = """
import signal, time
def save(*_):
    pathlib.Path("saved").write_text(str(ray.get(Actor.options(num_cpus=0).remote().seen.remote())))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("ready").touch()
time.sleep(600)
"""
    first, second = run(ACTORS + wait, tmp_path, nodes=2, stop_when="ready")
    assert (first["kinds"][0], first["kinds"][-1], second["kinds"][-1]) == ("program_started", "stopped", "stopped")
    assert (tmp_path / "saved").exists() and none_left(tmp_path)


@pytest.mark.full
def test_a_python_without_ray_is_said(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -I "$@"\n')  # type: ignore[attr-defined]
    bare.chmod(0o755)
    (only,) = run("", tmp_path, ranks=1, command=(str(bare), "driver.py"))
    assert "the program's Python has no Ray: name ray in env.python" in only["failed"].message
    (only,) = run("", tmp_path, ranks=1, command=("/none/python3", "driver.py"))
    assert "cannot be started: the Ray node on this node: " in only["failed"].message
    assert "No such file or directory: '/none/python3'" in only["failed"].message


def test_a_node_offers_what_its_ranks_hold() -> None:
    gpus = replace(COORDS, device="cuda", local_world_size=4)
    assert (resources(SHARE, COORDS).cpus, resources(SHARE, COORDS).gpus) == (2, 0)
    assert (resources(SHARE, gpus).cpus, resources(SHARE, gpus).gpus) == (4, 4)
    assert resources(replace(SHARE, cpus=7.6), gpus).cpus == 30


def test_a_cluster_of_one_node_stays_on_loopback_and_all_have_a_token() -> None:
    env = {"RAY_AUTH_MODE": "disabled", "RAY_DEDUP_LOGS": "0"}
    one = variables(replace(SHARE, storage="/storage/a-job"), COORDS, "secret", env)
    assert (one["RAY_AUTH_MODE"], one["RAY_AUTH_TOKEN"], one["RAY_DEDUP_LOGS"]) == ("token", "secret", "0")
    assert one["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0" and one["SHARDYARD_JOB_STORAGE"] == "/storage/a-job"
    two = variables(SHARE, replace(COORDS, nodes=2), "secret", {})
    assert not {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "SHARDYARD_JOB_STORAGE"} & two.keys()


def test_the_cluster_has_the_ray_of_the_commands_python(tmp_path: Path) -> None:
    (tmp_path / "python").touch(mode=0o755)
    env = {"PATH": str(tmp_path)}
    assert interpreter(("/opt/bin/python3.12", "x.py"), env) == "/opt/bin/python3.12"
    assert {interpreter((name, "x"), env) for name in ("python", "/bin/sh")} == {str(tmp_path / "python")}
    (tmp_path / "python3.12").touch(mode=0o755)
    assert interpreter(("python3.12", "x.py"), env) == str(tmp_path / "python3.12")
    assert interpreter(("python3.13", "x.py"), env) == str(tmp_path / "python")


def test_of_rays_output_the_reason_is_one_line() -> None:
    ended = "2026-11-25 22:37:40,481\tERR scripts.py:1290 -- Some Ray subprocesses exited unexpectedly:\n  raylet [exit code=-9]\n\n"
    last = "2026-11-25 22:37:43,396\tERR scripts.py:1300 -- Remaining processes will be killed.\n"
    assert reason(ended + last) == "raylet [exit code=-9]"
    assert reason("Traceback (most recent call last):\n  File x\nValueError: no port\n") == "ValueError: no port"
    assert reason("") == "it printed nothing"
    assert reason(f"ValueError: {'x' * 480} hf_{'s' * 40}\n") == f"ValueError: {'x' * 480}", (
        "a secret is masked where it is whole"
    )
    assert reason("x" * 501) == "a line of 501 characters"
    assert "name ray in env.python" in reason("ModuleNotFoundError: No module named 'ray'\n")
