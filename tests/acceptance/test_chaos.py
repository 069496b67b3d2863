"""Whatever happens to whom, every job succeeds, each step is stored once, and the parameters are those of a run to which nothing happened.

`make chaos SEED=… N=…` draws more faults, and `make chaos FAULTS=… LAYOUT=…` repeats one job's; twenty, each kind at least once, come
with every run of the tests.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness.chaos import FINAL, SAVE_EVERY, Fault, drawn, possible
from harness.chaos_campaign import ChaosCampaign, measure
from harness.chaos_stage import ChaosStage, running_stage
from harness.control_plane import ControlPlane, spec, until
from harness.patience import PATIENCE_S
from harness.postgres import Postgres
from harness.processes import actors, trainers

from shardyard import Client

SEED = int(os.environ.get("CHAOS_SEED") or 0)
COUNT = int(os.environ.get("CHAOS_COUNT") or 20)
#: These instead, such as `kill-rank:0.5 cut-and-forget:0.25`, all at jobs of the layout of this number.
FAULTS = [Fault.parse(text) for text in os.environ.get("CHAOS_FAULTS", "").split()]
LAYOUT = int(os.environ.get("CHAOS_LAYOUT") or 0)
#: Faults per job: so many that they also meet each other's repairs.
EACH = 6
LAYOUTS: list[dict[str, Any]] = [
    {"data": 4, "zero": 1},
    {"data": 2, "pipeline": 2, "zero": 1},
    {"data": 4, "zero": 3},
    {"data": 2, "tensor": 2},
    {"data": 2, "context": 2, "zero": 2},
    {"tensor": 2, "pipeline": 2},
]
STEPS = 60 + 20 * EACH


@pytest.mark.full
@pytest.mark.timeout(1800 + 120 * (len(FAULTS) or COUNT))
def test_no_fault_is_seen_in_the_numbers(postgres: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    def report(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}" if not lines else text, flush=True)
        lines.append(text)

    lines: list[str] = []
    with running_stage(postgres) as stage:
        kinds, impossible = possible(stage)
        for kind, why in impossible.items():
            report(f"  skipped: {kind}, because {why}")
        campaign = ChaosCampaign(FAULTS or drawn(SEED, COUNT, kinds), report)
        _play(stage, campaign)
        report(campaign.summary())
        _nothing_is_left(stage)


def _play(stage: ChaosStage, campaign: ChaosCampaign) -> None:
    """Jobs of one layout after the other, until all faults are injected."""
    layouts = [LAYOUT] if FAULTS else list(range(min(len(LAYOUTS), -(-COUNT // EACH))))
    whole = _whole(stage.plane, layouts)
    most_jobs = 4 * (len(campaign.faults) + 1)
    while campaign.left:
        assert campaign.jobs < most_jobs, "faults found no running job"
        number = layouts[campaign.jobs % len(layouts)]
        _harm(stage, campaign, number, whole[number])


def _whole(plane: ControlPlane, layouts: list[int]) -> dict[int, tuple[Any, Any]]:
    """What jobs come to, to which nothing happens."""
    jobs = {number: _submit(plane, f"whole-{number}", number) for number in layouts}
    return {number: _outcome(plane, job)[:2] for number, job in jobs.items()}


def _harm(stage: ChaosStage, campaign: ChaosCampaign, number: int, whole: tuple[Any, Any]) -> None:
    """One job, its faults, and what it came to all the same."""
    job, plane = _submit(stage.plane, f"broken-{number}-{campaign.jobs}", number), stage.plane
    first = len(campaign.injections)
    campaign.report(f"  {job}: layout {number}, {LAYOUTS[number]}")
    try:
        injected = campaign.inject(stage, job, EACH, lambda: _step(plane, job), STEPS)
        curve, parameters, done_at = _outcome(plane, job)
        assert curve == whole[0], _difference(curve, whole[0])
        assert parameters == whole[1], "the parameters are others"
    except Exception as error:
        faults = " ".join(str(injection.fault) for injection in campaign.injections[first:])
        again = f'make chaos FAULTS="{faults}" LAYOUT={number}  (drawn by SEED={SEED} N={COUNT})'
        raise AssertionError(f"{error}\n{_story(plane, job)}\nOnce more with: {again}") from error
    measure(injected, done_at)


def _difference(curve: list[Any], whole: list[Any]) -> str:
    first = next(step for step, pair in enumerate(zip(curve, whole, strict=True), 1) if pair[0] != pair[1])
    return f"the curve is another from step {first} on: {curve[first - 1]} instead of {whole[first - 1]}"


def _nothing_is_left(stage: ChaosStage) -> None:
    """No rank, no placement group, no device; after the control plane's end no process, and so no port."""
    plane = stage.plane
    until(lambda: not _cast(stage), PATIENCE_S, f"the end of {_cast(stage)}")
    with plane.client() as client:
        until(lambda: sum(node.cpu_used for node in client.nodes()) < 1e-6, PATIENCE_S, "all devices to be free")
    stage.cleared()


def _cast(stage: ChaosStage) -> list[psutil.Process]:
    return [*trainers(stage), *actors(stage, "Rank"), *actors(stage, "Supervisor")]


def _submit(plane: ControlPlane, name: str, number: int) -> str:
    checkpoint = {"every": SAVE_EVERY, "keep": 3}
    train = {"snapshot": {"every": 1}, "checkpoint": checkpoint, "eval": {"batches": 1}, "precision": "bf16"}
    body = spec(name, steps=STEPS, layout=LAYOUTS[number], **train) | {
        "policy": {"hang_timeout_s": 5, "max_repairs": 100}
    }
    with plane.client() as client:
        return client.submit(body).id


def _step(plane: ControlPlane, job: str) -> int | None:
    """The newest step that is stored, while the job runs."""
    with plane.client() as client:
        found = client.job(job)
    if found.state in FINAL:
        return None
    return found.progress.step if found.progress and found.state == "running" else 0


def _outcome(plane: ControlPlane, job: str) -> tuple[Any, Any, list[float]]:
    """The curve, each step once; the last checkpoint's values; and when each step was done. Its files then go."""
    with plane.client() as client:
        done = client.wait(job, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt) == ("succeeded", 1), f"{done.state}, attempt {done.attempt}: {done.message}"
        points = client.metrics(job, max_points=10_000).points
    assert [point.step for point in points] == list(range(1, STEPS + 1)), "steps are missing or came twice"
    parameters = _parameters(plane.storage / job / f"step-{STEPS:08d}")
    shutil.rmtree(plane.storage / job)
    return [(point.loss, point.grad_norm) for point in points], parameters, [point.ts or 0.0 for point in points]


def _story(plane: ControlPlane, job: str) -> str:
    """Everything that the service knows of a job that went wrong."""

    def asked(ask: Callable[[Client], str]) -> str:
        try:
            with plane.client() as client:
                return ask(client)
        except Exception as error:
            return f"(cannot be read: {error})"

    states = asked(lambda client: "\n".join(str(event.data) for event in client.events(job) if event.kind == "state"))
    stories = asked(lambda client: "\n".join(incident.summary for incident in client.incidents(job).items))
    logs = asked(lambda client: "\n".join(f"[{line.rank}] {line.text}" for line in client.logs(job, tail=60).lines))
    spoken = asked(lambda client: str(client.job(job).spec))
    return f"spec: {spoken}\n{states}\n{stories}\n{logs}"


def _parameters(checkpoint: Path) -> dict[str, bytes]:
    """A checkpoint's files by rank; what follows the rank in a name is of that save alone."""
    return {file.name[:10]: file.read_bytes() for file in checkpoint.glob("rank-*")}
