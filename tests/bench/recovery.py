"""How long from the SIGKILL of a rank to the next step: Shardyard's repair in place beside Ray Train's restart, same model, same loop.

    python tests/bench/recovery.py [--ranks 4] [--rounds 5]

All contenders take turns within each round; ratios are taken per round, and their median, minimum and maximum are printed. Shardyard
loses a trainer, or a rank's actor with its trainer; Ray Train a worker, which is both. Ray Train's clock stops at the first step of any
number, though it trains some again; Shardyard's at the first that was not told before. Jobs with and without snapshots, in turn as well,
give what these cost per step, and a job that saves often how long a checkpoint holds the training, in steps.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness.chaos import actors, trainers  # noqa: E402
from harness.plane import Plane, running_plane, until  # noqa: E402
from launch import RAY_TRAIN, ratio, ray_cluster  # noqa: E402

#: Steps before the fault: the snapshots' interval is chosen by then.
SETTLED = 30
STEPS = 100_000


def spec(ranks: int, snapshots: bool = True, steps: int = STEPS) -> dict[str, Any]:
    """The quickstart's model over `ranks` data-parallel ranks, by default longer than anybody waits."""
    train = {
        "model": {"preset": "nano"},
        "data": {"seq_len": 128},
        "layout": {"data": ranks, "zero": 1},
        "optimizer": {"lr": 3e-3},
        "steps": steps,
        "global_batch": 32,
        "eval": {"batches": 1},
        "checkpoint": {"every": 20, "keep": 2, "final": False},
        "snapshot": {"every": None if snapshots else 0},
    }
    return {"name": "bench", "train": train}


def ours(plane: Plane, ranks: int, strike: Callable[[], None]) -> tuple[float, int]:
    """Seconds from `strike` to the first new step, and how many steps were trained again."""
    with plane.client() as client:
        job = client.submit(spec(ranks)).id
        try:
            until(lambda: (at := client.job(job).progress) is not None and at.step >= SETTLED, 180, "the fault's time")
            struck = time.time()
            strike()
            until(lambda: any(i.repair for i in client.incidents(job).items), 180, "the repair")
            (incident,) = client.incidents(job).items
            assert incident.repair and incident.repair.step and incident.step
            told = incident.step
            # Steps that a dead actor had not passed on are told after the repair, but were trained before the fault.
            trained: Callable[[], list[float]] = lambda: [  # noqa: E731
                p.ts for p in client.metrics(job, since=told).points if p.ts and p.ts > struck
            ]
            until(lambda: bool(trained()), 60, "the first new step")
            assert incident.repair.restored is not None
            return trained()[0] - struck, max(0, told - incident.repair.restored)
        finally:
            client.cancel(job)
            client.wait(job, timeout_s=60)


def kill_a_trainer(plane: Plane) -> None:
    trainers(plane)[-1].kill()


def kill_an_actor(plane: Plane) -> None:
    actors(plane, "Rank")[-1].kill()


#: Ray Train as `launch.py` runs it, told to start again after a failure, and each worker leaving its process's number.
RESTARTING = RAY_TRAIN.replace(
    "storage_path=", "failure_config=ray.train.FailureConfig(max_failures=3), storage_path="
).replace(
    "    torch.set_num_threads(1)\n",
    "    torch.set_num_threads(1)\n"
    "    rank = ray.train.get_context().get_world_rank()\n"
    '    (pathlib.Path(config["folder"]) / f"{rank}.pid").write_text(str(__import__("os").getpid()))\n',
)


def ray_train(folder: Path, address: str, env: dict[str, str], ranks: int) -> float:
    """Seconds from a worker's SIGKILL to Ray Train's next step of any number."""
    for old in [*folder.glob("*.pid"), folder / "steps.jsonl"]:
        old.unlink(missing_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    script = folder / "ray_train.py"
    script.write_text(RESTARTING)
    command = [sys.executable, str(script), str(folder), address, str(ranks), json.dumps(spec(ranks, snapshots=False))]
    with (folder / "ray_train.log").open("ab") as log:
        driver = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        until(lambda: len(_steps(folder)) >= SETTLED, 240, f"Ray Train's steps; its log: {folder / 'ray_train.log'}")
        struck = time.time()
        os.kill(int((folder / f"{ranks - 1}.pid").read_text()), signal.SIGKILL)
        until(lambda: _steps(folder)[-1] > struck + 0.5, 240, "Ray Train's next step")
        return next(ts for ts in _steps(folder) if ts > struck + 0.5) - struck
    finally:
        driver.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(30)
        driver.kill()
        driver.wait(10)


def _steps(folder: Path) -> list[float]:
    """When rank 0 ended each of its steps."""
    file = folder / "steps.jsonl"
    return [json.loads(line)["ts"] for line in file.read_text().splitlines()] if file.exists() else []


def pace(plane: Plane, ranks: int, snapshots: bool) -> tuple[float, float]:
    """Seconds per step of a job that has settled, and the longest that one of its checkpoints held the training."""
    with plane.client() as client:
        job = client.submit(spec(ranks, snapshots, steps=4 * SETTLED)).id
        done = client.wait(job, timeout_s=300)
        assert done.state == "succeeded", done.message
        held = [event.data["held_s"] for event in client.events(job) if event.kind == "checkpoint"]
        return statistics.median(point.step_s for point in client.metrics(job, since=SETTLED).points), max(held)


def measure(ranks: int, rounds: int) -> dict[str, list[float]]:
    """By contender seconds, by cost seconds; one entry per round."""
    folder = Path(tempfile.mkdtemp(prefix="sb-"))
    names = ("trainer", "actor", "ray train", "with snapshots", "without", "held")
    times: dict[str, list[float]] = {name: [] for name in names}
    try:
        with running_plane() as plane, ray_cluster(folder / "rt") as (address, env):
            for number in range(rounds):
                seconds, again = ours(plane, ranks, lambda: kill_a_trainer(plane))
                times["trainer"].append(seconds)
                times["actor"].append(ours(plane, ranks, lambda: kill_an_actor(plane))[0])
                times["ray train"].append(ray_train(folder, address, env, ranks))
                step_s, held_s = pace(plane, ranks, snapshots=True)
                times["with snapshots"].append(step_s)
                times["held"].append(held_s)
                times["without"].append(pace(plane, ranks, snapshots=False)[0])
                last = ", ".join(f"{name} {found[-1]:.3f} s" for name, found in times.items())
                print(f"  round {number + 1}: {last}; steps trained again: {again}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.ranks} ranks, {options.rounds} rounds", flush=True)
    times = measure(options.ranks, options.rounds)
    for name, found in times.items():
        print(f"  {name:<14} {statistics.median(found):7.3f} s ({min(found):.3f}–{max(found):.3f})")
    for name in ("trainer", "actor"):
        print(f"  {name}/Ray Train {ratio(times[name], times['ray train'])}")
    print(f"  a step with snapshots/without {ratio(times['with snapshots'], times['without'])}")
    print(f"  longest hold by a checkpoint/step {ratio(times['held'], times['with snapshots'])}")


if __name__ == "__main__":
    main()
