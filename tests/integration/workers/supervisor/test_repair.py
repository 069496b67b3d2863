"""A gang that loses a rank is repaired in place, and its numbers do not change."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from harness.patience import PATIENCE_S
from harness.process_ownership import actor_of

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.settings import Settings
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.program.program import ENTRY, Program

from .following import Event, actors_of, closed, follow, is_final, is_step, kill_supervisor, pids, standing_by, states

pytestmark = pytest.mark.asyncio(loop_scope="module")

STEPS = 24
#: Others are in `tests/acceptance/test_chaos.py`.
LAYOUTS: list[dict[str, Any]] = [{"data": 2, "tensor": 2}, {"data": 4, "zero": 3}]


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


def train_gang(name: str, folder: Path, layout: dict[str, Any], max_repairs: int = 5, **train: Any) -> GangSpec:
    folder.mkdir(exist_ok=True)
    model = {"preset": "nano", "layers": 2, "dim": 32, "heads": 4, "kv_heads": 2, "hidden": 64}
    spec = {
        "model": model,
        "data": {"seq_len": 32},
        "layout": layout,
        "precision": "bf16",
        "steps": STEPS,
        "global_batch": 8,
        "snapshot": {"every": 1},
        "eval": {"every": 8, "batches": 1},
        **train,
    }
    run = {
        "job": name,
        "train": spec,
        "checkpoints": str(folder / "checkpoints"),
        "cache": str(folder.parent / "cache"),
    }
    whole = {"run": run, "folder": str(folder)}
    return GangSpec(f"shardyard-{name}-1", whole, 4, layout.get("tensor", 1), "cpu", max_repairs)


def gate(folder: Path, steps: int) -> Path:
    """Rank 0 waits after so many steps of each generation until this file is removed: no fault comes too late, however slow its test is."""
    folder.mkdir(exist_ok=True)
    file = folder / "0.stuck"
    file.write_text(str(steps))
    return file


def curve(events: list[Event]) -> list[tuple[int, float, float]]:
    steps = [event["data"] for event in events if event["kind"] == "step"]
    return [(step["step"], step["loss"], step["grad_norm"]) for step in steps]


def incidents_of(events: list[Event]) -> list[Event]:
    return [event for event in events if event["kind"] == "incident"]


def facts(events: list[Event], kind: str) -> list[tuple[int, Any]]:
    return [(e["data"]["step"], e["data"].get("loss")) for e in events if e["kind"] == kind]


def parameters(folder: Path) -> dict[str, bytes]:
    """The last checkpoint's files; what follows the rank in a name is of that save alone."""
    step = max((folder / "checkpoints").glob("step-*"))
    return {file.name[:10]: file.read_bytes() for file in step.glob("rank-*")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Event], Path]:
    """A run of the first layout without a fault: its events, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return await unbroken(cluster, "whole", folder, LAYOUTS[0]), folder


async def unbroken(cluster: Cluster, name: str, folder: Path, layout: dict[str, Any], **train: Any) -> list[Event]:
    gang = train_gang(name, folder, layout, **train)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name)
    assert states(events) == ["starting", "running", "succeeded"], incidents_of(events)
    await cluster.close_gang(gang.name)
    return events


@pytest.mark.timeout(900)  # of six waits, each of which has its own
@pytest.mark.parametrize("layout", [LAYOUTS[0], pytest.param(LAYOUTS[1], marks=pytest.mark.full)], ids=str)
async def test_a_killed_trainer_and_a_killed_actor_cost_no_step_and_no_bit(
    cluster: Cluster, whole: tuple[list[Event], Path], tmp_path: Path, layout: dict[str, Any]
) -> None:
    name = "-".join(f"{key}{value}" for key, value in layout.items())
    reference, kept = whole
    if layout != LAYOUTS[0]:
        reference, kept = await unbroken(cluster, f"whole-{name}", tmp_path / "whole", layout), tmp_path / "whole"
    folder = tmp_path / "broken"
    broken = train_gang(f"broken-{name}", folder, layout)
    held = gate(folder, 5)
    await cluster.start_gang(broken)
    events = await follow(cluster, broken.name, until=is_step(5))
    os.kill(pids(folder)[1], signal.SIGKILL)
    events += await follow(cluster, broken.name, after=len(events), until=is_running)
    assert events[-1]["data"]["reason"] == "repaired", events[-1]
    events += await follow(cluster, broken.name, after=len(events), until=is_step(10))
    actor_of(pids(folder)[0]).kill()
    held.unlink()
    events += await follow(cluster, broken.name, after=len(events))

    assert states(events) == ["starting", "running", *["recovering", "running"] * 2, "succeeded"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert curve(events) == curve(reference) and len(curve(reference)) == STEPS
    assert facts(events, "eval") == facts(reference, "eval")
    assert parameters(folder) == parameters(kept)
    repairs = [event["data"] for event in events if event["kind"] == "repair"]
    assert [(r["cause"], r["rank"], r["generation"]) for r in repairs] == [("rank_lost", 1, 2), ("rank_lost", 0, 3)]
    assert_no_step_was_lost(events)
    await closed(cluster, broken.name, pids(folder))


def assert_no_step_was_lost(events: list[Event]) -> None:
    """Each repair goes on from memory, at or after the newest step before its incident."""
    incidents = [event["data"] for event in events if event["kind"] == "incident"]
    reached = [incident["step"] for incident in incidents if incident["cause"] != "supervisor_lost"]
    restored = [event["data"]["restored"] for event in events if event["kind"] == "repair"]
    assert restored and None not in restored, restored
    assert all(had <= got for had, got in zip(reached, restored, strict=True)), (reached, restored)


def is_running(event: Event) -> bool:
    return bool(event["kind"] == "state" and event["data"]["state"] == "running")


def is_recovering(event: Event) -> bool:
    return bool(event["kind"] == "state" and event["data"]["state"] == "recovering")


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 2])
async def test_a_killed_actor_is_replaced_and_its_memory_is_not_lost(
    cluster: Cluster, whole: tuple[list[Event], Path], tmp_path: Path, rank: int
) -> None:
    broken = train_gang(f"actor-{rank}", tmp_path / "broken", LAYOUTS[0])
    held = gate(tmp_path / "broken", 5)
    await cluster.start_gang(broken)
    events = await follow(cluster, broken.name, until=is_step(5))
    actor_of(pids(tmp_path / "broken")[rank]).kill()
    held.unlink()
    events += await follow(cluster, broken.name, after=len(events))

    assert states(events) == ["starting", "running", "recovering", "running", "succeeded"], events[-1]
    assert curve(events) == curve(whole[0])
    assert parameters(tmp_path / "broken") == parameters(whole[1])
    assert_no_step_was_lost(events)
    await closed(cluster, broken.name, pids(tmp_path / "broken"))


@pytest.mark.full
async def test_a_spare_takes_over_and_another_one_its_place(
    cluster: Cluster, whole: tuple[list[Event], Path], tmp_path: Path
) -> None:
    """Rank 0 is stuck, five steps into each generation, until the spare is there; between two deaths the supervisor dies as well."""
    gang = replace(train_gang("spared", tmp_path / "run", LAYOUTS[0]), spares=1)
    held = gate(tmp_path / "run", 5)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(5))
    first = await standing_by(gang.name)
    actor_of(pids(tmp_path / "run")[1]).kill()
    events += await follow(cluster, gang.name, after=len(events), until=is_step(10))
    second = await standing_by(gang.name)
    await kill_supervisor(gang.name)
    assert await standing_by(gang.name) == second != first
    actor_of(pids(tmp_path / "run")[0]).kill()
    held.unlink()
    events += await follow(cluster, gang.name, after=len(events))

    assert states(events) == ["starting", "running", *["recovering", "running"] * 2, "succeeded"], events[-1]
    assert curve(events) == curve(whole[0])
    assert parameters(tmp_path / "run") == parameters(whole[1])
    repairs = [event["data"] for event in events if event["kind"] == "repair"]
    assert [(repair["rank"], repair["spares"]) for repair in repairs] == [(1, [1]), (0, [0])]
    assert_no_step_was_lost(events)
    await closed(cluster, gang.name, pids(tmp_path / "run"))


@pytest.mark.full
async def test_a_spare_takes_over_a_rank_of_a_command(cluster: Cluster, tmp_path: Path) -> None:
    script = 'echo $PPID > "$0/$RANK.pid"; while [ ! -e "$0/over" ]; do sleep 0.1; done'
    run = Program("command", ("sh", "-c", script, str(tmp_path))).to_json()
    gang = replace(train_gang("command", tmp_path, {}), run=run, entry=ENTRY, spares=1)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_running)
    first = await standing_by(gang.name)
    actor_of(int((tmp_path / "0.pid").read_text())).kill()
    events += await follow(cluster, gang.name, after=len(events), until=is_running)
    assert await standing_by(gang.name) != first
    (tmp_path / "over").touch()
    events += await follow(cluster, gang.name, after=len(events))
    assert states(events) == ["starting", "running", "recovering", "running", "succeeded"], events[-1]
    assert [event["data"]["spares"] for event in events if event["kind"] == "repair"] == [[0]]
    await closed(cluster, gang.name, pids(tmp_path))


@pytest.mark.full
async def test_an_actor_that_dies_at_the_start_is_replaced(
    cluster: Cluster, settings: Settings, whole: tuple[list[Event], Path], tmp_path: Path
) -> None:
    gang = train_gang("early", tmp_path / "run", LAYOUTS[0])
    before = set(actors_of(settings))
    await cluster.start_gang(gang)
    (await first_beside(before, settings)).kill()
    events = await follow(cluster, gang.name)
    assert "recovering" in states(events) and states(events)[-2:] == ["running", "succeeded"], events[-1]
    assert curve(events) == curve(whole[0])
    await closed(cluster, gang.name, pids(tmp_path / "run"))


async def first_beside(known: set[psutil.Process], settings: Settings) -> psutil.Process:
    """The first rank actor of this cluster that is not known."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for process in actors_of(settings):
                if process not in known:
                    return process
            await asyncio.sleep(0.01)


@pytest.mark.full
async def test_a_supervisor_may_die_with_a_trainer_and_within_a_repair(
    cluster: Cluster, whole: tuple[list[Event], Path], tmp_path: Path
) -> None:
    broken = train_gang("both", tmp_path / "broken", LAYOUTS[0])
    held = gate(tmp_path / "broken", 5)
    await cluster.start_gang(broken)
    events = await follow(cluster, broken.name, until=is_step(5))
    await kill_supervisor(broken.name)
    os.kill(pids(tmp_path / "broken")[1], signal.SIGKILL)
    events += await follow(cluster, broken.name, after=len(events), until=is_running)
    events += await follow(cluster, broken.name, after=len(events), until=is_step(10))
    os.kill(pids(tmp_path / "broken")[0], signal.SIGKILL)
    events += await follow(cluster, broken.name, after=len(events), until=is_recovering)
    await kill_supervisor(broken.name)
    held.unlink()
    events += await follow(cluster, broken.name, after=len(events))

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert states(events) == ["starting", "running", *["recovering", "running"] * 2, "succeeded"], events[-1]
    causes = [event["data"]["cause"] for event in events if event["kind"] == "incident"]
    assert causes.count("rank_lost") == 2 and set(causes) == {"supervisor_lost", "rank_lost"}
    assert curve(events) == curve(whole[0])
    assert facts(events, "eval") == facts(whole[0], "eval")
    assert parameters(tmp_path / "broken") == parameters(whole[1])
    await closed(cluster, broken.name, pids(tmp_path / "broken"))


@pytest.mark.full
async def test_what_dies_again_and_again_is_given_up(cluster: Cluster, tmp_path: Path) -> None:
    gang = train_gang("hopeless", tmp_path / "run", {"data": 4}, max_repairs=2)
    gate(tmp_path / "run", 5)
    await cluster.start_gang(gang)
    events: list[Event] = []
    while not events or not is_final(events[-1]):
        events += await follow(cluster, gang.name, after=len(events), until=is_running)
        if not is_final(events[-1]):
            os.kill(pids(tmp_path / "run")[3], signal.SIGKILL)
    assert states(events) == ["starting", "running", *["recovering", "running"] * 2, "failed"]
    assert events[-1]["data"]["reason"] == "rank_lost"
    await closed(cluster, gang.name, pids(tmp_path / "run"))


@pytest.mark.full
async def test_without_snapshots_the_newest_checkpoint_serves(cluster: Cluster, tmp_path: Path) -> None:
    layout = {"data": 4, "zero": 2}
    off = {"snapshot": {"every": 0}, "checkpoint": {"every": 4}}
    whole = await unbroken(cluster, "stored", tmp_path / "whole", layout)
    gang = train_gang("restored", tmp_path / "run", layout, **off)
    held = gate(tmp_path / "run", 10)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(10))
    os.kill(pids(tmp_path / "run")[2], signal.SIGKILL)
    held.unlink()
    events += await follow(cluster, gang.name, after=len(events))
    assert states(events)[-1] == "succeeded"
    assert curve(events) == curve(whole)
    (repair,) = [event["data"] for event in events if event["kind"] == "repair"]
    assert repair["restored"] is None
    await closed(cluster, gang.name, pids(tmp_path / "run"))


@pytest.mark.full
async def test_a_parameter_server_that_dies_costs_no_step_and_no_bit(cluster: Cluster, tmp_path: Path) -> None:
    """First the trainer of one server, then the actor of the other; rank 0, a worker, waits for both."""
    layout = {"data": 2, "parameter_server": {"servers": 2}}
    reference = await unbroken(cluster, "whole-served", tmp_path / "whole", layout)
    folder = tmp_path / "broken"
    broken = train_gang("broken-served", folder, layout)
    held = gate(folder, 5)
    await cluster.start_gang(broken)
    events = await follow(cluster, broken.name, until=is_step(5))
    os.kill(pids(folder)[2], signal.SIGKILL)
    events += await follow(cluster, broken.name, after=len(events), until=is_running)
    events += await follow(cluster, broken.name, after=len(events), until=is_step(10))
    actor_of(pids(folder)[3]).kill()
    held.unlink()
    events += await follow(cluster, broken.name, after=len(events))
    assert states(events) == ["starting", "running", *["recovering", "running"] * 2, "succeeded"]
    assert curve(events) == curve(reference) and len(curve(reference)) == STEPS
    assert parameters(folder) == parameters(tmp_path / "whole")
    assert [event["data"]["rank"] for event in events if event["kind"] == "repair"] == [2, 3]
    await closed(cluster, broken.name, pids(folder))


@pytest.mark.full
@pytest.mark.parametrize("how", ["killed", "actor", "stuck"])
async def test_a_worker_with_a_clock_of_its_own_is_gone_and_returns_and_no_step_is_repeated(
    cluster: Cluster, tmp_path: Path, how: str
) -> None:
    """Its trainer or its actor dies, or it is stuck. All meet at step 5, and the others train on to the validation of step 8."""
    layout = {"data": 3, "parameter_server": {"servers": 1, "mode": "stale", "bound": 2}}
    folder = tmp_path / "elastic"
    gang = train_gang(f"elastic-{how}", folder, layout, snapshot={"every": 4}, global_batch=6)
    gang = replace(gang, own_clocks=3, hang_timeout_s=10.0 if how == "stuck" else None)
    held = gate(folder, 6)
    if how == "stuck":
        held = held.rename(folder / "1.stuck")
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(5))
    pid = pids(folder)[1]
    if how == "actor":
        actor_of(pid).kill()
    if how == "killed":
        os.kill(pid, signal.SIGKILL)
    events += await follow(cluster, gang.name, after=len(events), until=lambda event: event["kind"] == "incident")
    assert states(events) == ["starting", "running"], "the generation goes on"
    held.unlink()
    events += await follow(cluster, gang.name, after=len(events))
    assert states(events) == ["starting", "running", "recovering", "running", "succeeded"]
    (incident,) = [event["data"] for event in events if event["kind"] == "incident"]
    assert (incident["cause"], incident["rank"]) == ("hang" if how == "stuck" else "rank_lost", 1)
    assert "2 workers train on, and the rank returns at their next meeting" in incident["message"]
    (repair,) = [event["data"] for event in events if event["kind"] == "repair"]
    assert (repair["rank"], repair["restored"], repair["step"]) == (1, 8, 9)
    assert [step for step, *_ in curve(events)] == list(range(1, STEPS + 1))
    assert [step for step, _ in facts(events, "eval")] == [8, 16, 24]
    assert pids(folder)[1] != pid
    await closed(cluster, gang.name, pids(folder))


@pytest.mark.full
async def test_workers_with_clocks_of_their_own_go_on_from_their_newest_meeting(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A server's trainer dies between two meetings. Each step is reported once, in order."""
    layout = {"data": 2, "parameter_server": {"servers": 2, "mode": "stale", "bound": 2}}
    folder = tmp_path / "clocks"
    gang = train_gang("clocks", folder, layout, snapshot={"every": 4})
    held = gate(folder, 6)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(5))
    os.kill(pids(folder)[2], signal.SIGKILL)
    events += await follow(cluster, gang.name, after=len(events), until=is_running)
    held.unlink()
    events += await follow(cluster, gang.name, after=len(events))
    assert states(events) == ["starting", "running", "recovering", "running", "succeeded"]
    assert [step for step, *_ in curve(events)] == list(range(1, STEPS + 1))
    assert [event["data"]["restored"] for event in events if event["kind"] == "repair"] == [5]
    assert [step for step, _ in facts(events, "eval")] == [8, 16, 24]
    await closed(cluster, gang.name, pids(folder))
