"""How long from submit to the first step and from cancel to the end, and what the gang costs per step: Shardyard, torchrun and Ray Train on
the same model.

    python benchmarks/launch.py [--ranks 4 8] [--rounds 5]

All contenders take turns within each round, so that a busy machine is busy for all of them; ratios are taken per round, and their
median, minimum and maximum are printed. Ray Train runs on a Ray cluster that is already up, as the warm control plane does.
"warm" is submitted after `REST_S` of rest, "back to back" as soon as that one has ended, "fresh plane" as soon as a control plane of its
own is ready. What a step costs is taken from longer jobs of their own, as the mean of all steps but the first `SETTLED`.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness.control_plane import CLI, ControlPlane, running_control_plane, until  # noqa: E402

STEPS = 30
LONG, SETTLED = 120, 40
#: Seconds in which a control plane prepares for the next gang.
REST_S = 15.0

#: Seconds from submit to the first step, and each step's seconds.
Times = tuple[float, list[float]]


def spec(ranks: int, steps: int = STEPS) -> dict[str, Any]:
    """The quickstart's model over `ranks` data-parallel ranks."""
    return {
        "name": "bench",
        "train": {
            "model": {"preset": "nano"},
            "data": {"seq_len": 128},
            "layout": {"data": ranks},
            "optimizer": {"lr": 3e-3},
            "steps": steps,
            "global_batch": 32,
            "eval": {"batches": 1},
            "checkpoint": {"final": False},
        },
    }


def warm(plane: ControlPlane, ranks: int, steps: int = STEPS) -> Times:
    """Submit over REST to a running control plane."""
    with plane.client() as client:
        began = time.time()
        job = client.submit(spec(ranks, steps))
        done = client.wait(job.id, timeout_s=300)
        assert done.state == "succeeded", done.message
        points = client.metrics(job.id).points
    assert points[0].ts is not None
    return points[0].ts - began, [point.step_s for point in points if point.step_s is not None]


def cancelled(plane: ControlPlane, ranks: int) -> float:
    """Seconds from the start of a job that trains to its end."""
    with plane.client() as client:
        job = client.submit(spec(ranks, steps=100_000))
        until(lambda: bool(client.metrics(job.id).points), 120, "the first step")
        began = time.time()
        client.cancel(job.id)
        done = client.wait(job.id, timeout_s=120)
        assert done.state == "cancelled" and done.finished_at is not None, done.message
    return done.finished_at.timestamp() - began


def fresh(ranks: int) -> Times:
    """The first job of a control plane, which was started just now."""
    with running_control_plane() as plane:
        return warm(plane, ranks)


def cold(ranks: int) -> Times:
    """`shardyard run` with nothing running: control plane, Ray head and job."""
    plane = ControlPlane()
    try:
        file = plane.data / "spec.json"
        file.write_text(json.dumps(spec(ranks)))
        began = time.time()
        command = [*CLI, "run", str(file)]
        with subprocess.Popen(
            command, env=plane.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run:
            first = _first(run, lambda line: line.startswith("step "))
            run.communicate(timeout=300)
        assert run.returncode == 0
        return first - began, []
    finally:
        plane.end()


def torchrun(folder: Path, ranks: int, steps: int = STEPS) -> Times:
    """Plain torchrun of the same loop."""
    file = folder / "spec.json"
    file.write_text(json.dumps(spec(ranks, steps)))
    endpoint = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *endpoint]
    command += ["-m", "shardyard.workers.local", str(file), "--json", "--out", str(folder)]
    seconds: list[float] = []
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.time()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as run:
        first = _first(run, lambda line: line.startswith("{") and json.loads(line)["kind"] == "step")
        out, _ = run.communicate(timeout=300)
    for line in out.splitlines():
        event = json.loads(line)
        if event["kind"] == "step":
            seconds.append(event["data"]["step_s"])
    assert run.returncode == 0
    return first - began, seconds


def _first(run: "subprocess.Popen[str]", is_step: Callable[[str], bool]) -> float:
    """When the first line came that reports a step."""
    assert run.stdout is not None
    for line in run.stdout:
        if is_step(line):
            return time.time()
    raise RuntimeError("ended without a step")


RAY_TRAIN = """
import json, sys, time
import ray, torch
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

folder, address, ranks, document = sys.argv[1:5]


def loop(config):
    import pathlib, torch
    from shardyard.workers.trainer.assemble import train_on
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.spec import Run

    torch.set_num_threads(1)
    run = Run.model_validate(config["run"])
    def emit(kind, data):
        if kind == "step" and "loss" in data:
            with (pathlib.Path(config["folder"]) / "steps.jsonl").open("a") as out:
                out.write(json.dumps({"ts": time.time(), "step_s": data["step_s"]}) + "\\n")
    train_on(run, torch.device("cpu"), emit, Instruments())


ray.init(address=address, log_to_driver=False, logging_level="ERROR")
run = {"job": "bench", "train": json.loads(document)["train"], "checkpoints": folder + "/checkpoints", "cache": folder + "/cache"}
scaling = ScalingConfig(num_workers=int(ranks), resources_per_worker={"CPU": 0.2})
began = time.time()
trainer = TorchTrainer(loop, train_loop_config={"run": run, "folder": folder}, torch_config=TorchConfig(backend="gloo"),
                       scaling_config=scaling, run_config=ray.train.RunConfig(storage_path=folder + "/ray-train"))
trainer.fit()
print(json.dumps({"began": began}))
"""


def ray_train(folder: Path, address: str, env: dict[str, str], ranks: int) -> Times:
    """Ray Train's TorchTrainer with the same loop on a running cluster; timed from `TorchTrainer(…)`, after `ray.init`."""
    (folder / "steps.jsonl").unlink(missing_ok=True)
    script = folder / "ray_train.py"
    script.write_text(RAY_TRAIN)
    command = [sys.executable, str(script), str(folder), address, str(ranks), json.dumps(spec(ranks))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    began = json.loads(done.stdout.splitlines()[-1])["began"]
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    return steps[0]["ts"] - began, [step["step_s"] for step in steps]


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A local cluster for Ray Train alone, ended by `ray stop`'s own means: the pids below its folder."""
    from shardyard.service.cluster.ray_head import Head

    head = Head(folder)
    record = head.ensure()
    try:
        assert record.address is not None
        yield record.address, {**os.environ, **head.environment()}
    finally:
        head.shut_down()


def measure(ranks: int, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]], list[float]]:
    """One entry per round: by contender seconds to the first step, and seconds per settled step; seconds to cancel a job."""
    folder = Path(tempfile.mkdtemp(prefix="sb-"))
    plane = ControlPlane()
    contenders = ("warm", "back to back", "fresh plane", "torchrun", "ray train", "cold")
    first: dict[str, list[float]] = {name: [] for name in contenders}
    pace: dict[str, list[float]] = {"gang": [], "torchrun": []}
    ends: list[float] = []
    try:
        plane.up()
        warm(plane, ranks)  # fills the token cache and the page cache
        with ray_cluster(folder / "rt") as (address, env):
            for number in range(rounds):
                time.sleep(REST_S)
                first["warm"].append(warm(plane, ranks)[0])
                first["back to back"].append(warm(plane, ranks)[0])
                first["torchrun"].append(torchrun(folder, ranks)[0])
                first["ray train"].append(ray_train(folder, address, env, ranks)[0])
                first["cold"].append(cold(ranks)[0])
                first["fresh plane"].append(fresh(ranks)[0])
                pace["gang"].append(settled(warm(plane, ranks, LONG)))
                pace["torchrun"].append(settled(torchrun(folder, ranks, LONG)))
                ends.append(cancelled(plane, ranks))
                last = ", ".join(f"{name} {times[-1]:.1f} s" for name, times in first.items())
                steps = ", ".join(f"{name} {1e3 * times[-1]:.0f} ms/step" for name, times in pace.items())
                print(f"  round {number + 1}: {last}; {steps}; cancelled in {ends[-1]:.1f} s", flush=True)
    finally:
        plane.end()
        shutil.rmtree(folder, ignore_errors=True)
    return first, pace, ends


def settled(times: Times) -> float:
    return statistics.mean(times[1][SETTLED:])


def ratio(above: list[float], below: list[float]) -> str:
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for ranks in options.ranks:
        print(f"{ranks} ranks, {options.rounds} rounds", flush=True)
        first, pace, ends = measure(ranks, options.rounds)
        for name, times in first.items():
            spread = f"{statistics.median(times):6.2f} s to the first step ({min(times):.2f}–{max(times):.2f})"
            print(f"  {name:<12} {spread}{'   target ≤ 5 s' if name == 'fresh plane' else ''}")
        print(f"  warm / torchrun    {ratio(first['warm'], first['torchrun'])}   target ≤ 0.15 in every round")
        print(
            f"  back to back / torchrun {ratio(first['back to back'], first['torchrun'])}   target ≤ 0.15 in every round"
        )
        print(f"  warm / ray train   {ratio(first['warm'], first['ray train'])}   target ≤ 0.15")
        print(f"  cold / torchrun    {ratio(first['cold'], first['torchrun'])}")
        print(f"  steps/s of the gang / torchrun {ratio(pace['torchrun'], pace['gang'])}   target ≥ 0.98")
        print(f"  cancel to cancelled {statistics.median(ends):.2f} s ({min(ends):.2f}–{max(ends):.2f})   target ≤ 5 s")


if __name__ == "__main__":
    main()
