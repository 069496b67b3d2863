"""How long from the SIGKILL of a rank to the next step: Shardyard's repair in place beside Ray Train's restart, same model, same loop.

    python benchmarks/recovery.py [--ranks 4] [--rounds 5] [--only kills|costs]

All contenders take turns within each round; ratios are taken per round, and their median, minimum and maximum are printed. Shardyard
loses a trainer, or a rank's actor with its trainer, without and with a warm spare; Ray Train a worker, which is both. Ray Train's clock
stops at the first step of any number, though it trains some again; Shardyard's at the first that was not reported before. Steps lost are
those that were reported and are trained again. Each round also takes the cost of snapshots (`snapshot_cost.py`), and how long a checkpoint
of a job that saves often pauses training, in steps.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness.control_plane import ControlPlane, running_control_plane, until  # noqa: E402
from harness.process_ownership import actor_of  # noqa: E402
from harness.processes import actors, trainers  # noqa: E402
from launch import RAY_TRAIN, ratio, ray_cluster  # noqa: E402
from snapshot_cost import shares  # noqa: E402

#: Steps before the fault: the snapshots' interval is chosen by then.
SETTLED = 30
STEPS = 100_000
#: So long blocks of steps with and without snapshots take turns, per round.
TURNS_S = 120.0

#: Maximum seconds from noticing an incident to its report; a generation's first step takes longer to come.
CLOCKS_S = 0.1

#: Seconds from a fault to the next step, and how many steps were lost.
Recovery = tuple[float, int]


def spec(ranks: int, spares: int = 0, steps: int = STEPS) -> dict[str, Any]:
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
    }
    return {"name": "bench", "train": train, "policy": {"spares": spares}}


def ours(
    plane: ControlPlane, ranks: int, victim: Callable[[ControlPlane], psutil.Process], spares: int = 0
) -> Recovery:
    """From the victim's SIGKILL to the first new step."""
    with plane.client() as client:
        job = client.submit(spec(ranks, spares)).id
        step: Callable[[], int] = lambda: getattr(client.job(job).progress, "step", 0)  # noqa: E731
        try:
            until(lambda: step() >= SETTLED, 180, "a settled job")
            until(lambda: len(actors(plane, "Rank")) == ranks + spares, 180, "the spares")
            settled = step() + SETTLED
            until(lambda: step() >= settled, 180, "the fault's time")
            dying = victim(plane)
            injected = time.time()
            dying.kill()
            until(lambda: any(i.repair for i in client.incidents(job).items), 180, "the repair")
            (incident,) = client.incidents(job).items
            assert incident.repair and incident.repair.step and incident.step
            assert incident.repair.restored is not None and incident.repair.seconds is not None
            assert len(incident.repair.spares) == spares, incident.summary
            last, again = incident.step, incident.ts + incident.repair.seconds
            # The first step of the new generation, reported before or not, ended at `again`; what the old one still ended came earlier.
            trained: Callable[[], list[float]] = lambda: [  # noqa: E731
                p.ts for p in client.metrics(job, since=last).points if p.ts and p.ts > again - CLOCKS_S
            ]
            until(lambda: bool(trained()), 60, "the first new step")
            return trained()[0] - injected, max(0, last - incident.repair.restored)
        finally:
            client.cancel(job)
            client.wait(job, timeout_s=60)


def trainer(plane: ControlPlane) -> psutil.Process:
    return trainers(plane)[-1]


def actor(plane: ControlPlane) -> psutil.Process:
    return actor_of(trainer(plane).pid)


#: Ray Train as `launch.py` runs it, set to start again after a failure, each worker leaving its process's number, each step its own.
RESTARTING = (
    RAY_TRAIN.replace("storage_path=", "failure_config=ray.train.FailureConfig(max_failures=3), storage_path=")
    .replace('"step_s": data["step_s"]', '"step": data["step"]')
    .replace(
        "    torch.set_num_threads(1)\n",
        "    torch.set_num_threads(1)\n"
        "    rank = ray.train.get_context().get_world_rank()\n"
        '    (pathlib.Path(config["folder"]) / f"{rank}.pid").write_text(str(__import__("os").getpid()))\n',
    )
)


def ray_train(folder: Path, address: str, env: dict[str, str], ranks: int) -> Recovery:
    """From a worker's SIGKILL to Ray Train's next step of any number."""
    for old in [*folder.glob("*.pid"), folder / "steps.jsonl"]:
        old.unlink(missing_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    script = folder / "ray_train.py"
    script.write_text(RESTARTING)
    command = [sys.executable, str(script), str(folder), address, str(ranks), json.dumps(spec(ranks))]
    with (folder / "ray_train.log").open("ab") as log:
        driver = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        until(lambda: len(_steps(folder)) >= SETTLED, 240, f"Ray Train's steps; its log: {folder / 'ray_train.log'}")
        injected = time.time()
        os.kill(int((folder / f"{ranks - 1}.pid").read_text()), signal.SIGKILL)
        until(lambda: _steps(folder)[-1]["ts"] > injected + 0.5, 240, "Ray Train's next step")
        steps = _steps(folder)
        next_one = next(i for i, step in enumerate(steps) if step["ts"] > injected + 0.5)
        return steps[next_one]["ts"] - injected, steps[next_one - 1]["step"] + 1 - steps[next_one]["step"]
    finally:
        driver.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(30)
        driver.kill()
        driver.wait(10)


def _steps(folder: Path) -> list[dict[str, Any]]:
    """Number of each of rank 0's steps, and when it ended."""
    file = folder / "steps.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def stall(plane: ControlPlane, ranks: int) -> float:
    """The longest that a checkpoint paused training, in steps of a job that has settled."""
    with plane.client() as client:
        job = client.submit(spec(ranks, steps=4 * SETTLED)).id
        done = client.wait(job, timeout_s=300)
        assert done.state == "succeeded", done.message
        paused = [event.data["held_s"] for event in client.events(job) if event.kind == "checkpoint"]
        steps = [point.step_s for point in client.metrics(job, since=SETTLED).points if point.step_s is not None]
        return float(max(paused) / statistics.median(steps))


def snapshots(folder: Path, ranks: int) -> tuple[float, float]:
    """A step's time with snapshots over its time without, the median of neighbouring blocks of steps: by the clock, and of processors."""
    train = spec(ranks)["train"] | {"checkpoint": {"final": False}}
    clock, processors = shares(train, folder, TURNS_S)
    return statistics.median(clock), statistics.median(processors)


@dataclass(frozen=True)
class Found:
    """What was measured, one entry per round."""

    recoveries: dict[str, list[Recovery]]
    snapshots: list[tuple[float, float]]
    stalls: list[float]


def measure(ranks: int, rounds: int, only: str | None = None) -> Found:
    folder = Path(tempfile.mkdtemp(prefix="sb-"))
    found = Found({}, [], [])
    try:
        with running_control_plane() as plane, ray_cluster(folder / "rt") as (address, env):
            contenders: dict[str, Callable[[], Recovery]] = {
                "trainer": lambda: ours(plane, ranks, trainer),
                "actor": lambda: ours(plane, ranks, actor),
                "actor, spare": lambda: ours(plane, ranks, actor, spares=1),
                "Ray Train": lambda: ray_train(folder, address, env, ranks),
            }
            for number in range(rounds):
                print(f"  round {number + 1}", flush=True)
                for name, recover in contenders.items() if only != "costs" else ():
                    seconds, lost = recover()
                    found.recoveries.setdefault(name, []).append((seconds, lost))
                    print(f"    {name:<13} {seconds:6.2f} s, {lost} steps lost", flush=True)
                if only == "kills":
                    continue
                found.stalls.append(stall(plane, ranks))
                found.snapshots.append(snapshots(folder, ranks))
                print(f"    a checkpoint paused training for {found.stalls[-1]:.2f} steps", flush=True)
                clock, processors = found.snapshots[-1]
                print(f"    a step with snapshots/without {clock:.3f}, by processor time {processors:.3f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def show(found: Found) -> None:
    seconds = {name: [took for took, _ in each] for name, each in found.recoveries.items()}
    for name, each in found.recoveries.items():
        print(f"  {name:<13} {spread(seconds[name])} s, at most {max(lost for _, lost in each)} steps lost")
    for name, target in (("trainer", 0.1), ("actor", 0.3), ("actor, spare", 0.1)) if seconds else ():
        print(f"  {name + '/Ray Train':<23} {ratio(seconds[name], seconds['Ray Train'])}   target ≤ {target}")
    if not found.snapshots:
        return
    clock, processors = zip(*found.snapshots, strict=True)
    print(
        f"  a step with snapshots/without {spread(clock, 3)}, by processor time {spread(processors, 3)}   target ≤ 1.02"
    )
    print(f"  longest pause by a checkpoint, in steps {spread(found.stalls)}   target ≤ 1")


def spread(found: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.median(found):.{digits}f} ({min(found):.{digits}f}–{max(found):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", choices=["kills", "costs"], help="costs: what snapshots and checkpoints cost, which takes longest"
    )
    options = parser.parse_args()
    print(f"{options.ranks} ranks, {options.rounds} rounds", flush=True)
    show(measure(options.ranks, options.rounds, options.only))


if __name__ == "__main__":
    main()
