"""Parameter servers whose workers have clocks of their own: real ranks through the whole loop, against one process that replays them.

Where theory says that nothing is stale (one worker, or a bound of 0 and plain gradient descent), they equal what is synchronous.
"""

import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.broken_model import broken_model
from harness.ranks import Result, assert_checkpoints_fit, spawn, train, train_rank, whole_parameters
from harness.recorded_pushes import Line, furthest_ahead, met
from harness.textbook_stale import Replay

from shardyard.workers.checkpoint.manifest import read
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.storage.open_folder import folder_at

from .test_layouts import assert_equal, evaluations

Make = Callable[..., Any]

MODULE = (
    "from torch import nn\n\n\ndef make():\n"
    "    return nn.Sequential(nn.Embedding(256, 8), nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 256))\n"
)
ADAMW = {"name": "adamw", "lr": 5e-3, "beta1": 0.8, "beta2": 0.97, "eps": 1e-7, "weight_decay": 0.2, "clip_norm": 1e-2}
SGD = {"name": "sgd", "lr": 0.5, "beta1": 0.5, "weight_decay": 0.01, "clip_norm": None}
PLAIN = {"name": "sgd", "lr": 0.5, "beta1": 0.0, "weight_decay": 0.0, "clip_norm": None}
#: Seconds by which each worker's steps are longer than those of the one before.
SLOWER_S = 0.004
QUIET: dict[str, Any] = {"probe": {"every": None}, "eval": {"batches": 1}}


def served(workers: int, servers: int, mode: str, bound: int | None = None, **more: Any) -> dict[str, Any]:
    options = {"servers": servers, "mode": mode} | ({} if bound is None else {"bound": bound})
    return {"data": workers, "parameter_server": options, **more}


def run_of(spec: dict[str, Any], root: Path, name: str) -> Run:
    return Run(job=name, train=TrainSpec.model_validate(spec), checkpoints=root / name, cache=root / "cache")


class Killed(Exception):
    """Ends the process where it is raised: the harness leaves without a clean-up, as a killed one does."""


def recorded(
    rank: int, world: int, port: int, orders: str, stops: int = 0, traced: int = 0, goes: int = 0, memory: Any = None
) -> Result:
    """A rank's result, with what a server recorded.

    Worker 1 is asked to stop and save when it begins the step `stops`, and its process ends when it begins its step number `goes`. All are
    asked for a trace of `traced` steps from the third on. `memory`: for snapshots, see `restored`.
    """
    from shardyard.strategies.data_parallel.stale_server import StaleServer
    from shardyard.workers.messages.stop_request import StopRequest
    from shardyard.workers.messages.trace_request import Trace
    from shardyard.workers.trainer.instruments import Instruments

    servers: list[StaleServer] = []
    steps = 0

    def asked() -> StopRequest:
        nonlocal steps
        steps += 1
        if rank == 1 and steps == goes:
            raise Killed
        return StopRequest.SAVE if rank == 1 and 0 < stops <= steps else StopRequest.NO

    def prepared(parts: Any) -> Instruments:
        data = parts.parallel.data
        instruments = Instruments(stop_request=asked)
        instruments.slowdown.begin(SLOWER_S * (world - rank), 3600.0)
        if traced:
            instruments.pending_trace.order(Trace("traced", traced), first=3)
        if isinstance(data, StaleServer):
            servers.append(data)
            data.clocks.record = []
            instruments.slowdown.begin(0.0, 0.0)
        return instruments

    try:
        result = train_rank(rank, world, port, orders, prepared, None if memory is None else restored(rank, *memory))
    except Killed:
        return {"events": [], "shards": [], "record": []}
    lines = [(one.kind, one.worker, one.clock) for data in servers for one in data.clocks.record or ()]
    return result | {"record": lines}


def restored(rank: int, pid: int, slots: list[list[int]], step: int | None) -> Any:
    """A rank's snapshot memory, which the process `pid` holds for all, and the step that all restore."""
    from shardyard.workers.snapshot import shared_memory
    from shardyard.workers.trainer.restore import SnapshotMemory

    return SnapshotMemory(shared_memory.adopt(pid, slots[rank]), step, again=step is not None)


def steps_of(result: Result) -> list[int]:
    return [data["step"] for kind, data in result["events"] if kind == "step"]


@pytest.fixture
def own_model(tmp_path: Path) -> Any:
    """The spec's model, and the module's function."""
    path = tmp_path / "stale_model.py"
    path.write_text(MODULE)
    found = importlib.util.spec_from_file_location("stale_model", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return {"import": "stale_model:make", "code": str(tmp_path)}, module.make


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "stale-adamw": (served(3, 2, "stale", 1), {"optimizer": ADAMW}),
    "async-sgd": (served(2, 2, "async"), {"optimizer": SGD, "steps": 12}),
    "bound-0": (served(3, 1, "stale", 0), {"optimizer": ADAMW}),
    "two-ranks": (served(1, 1, "async"), {"optimizer": ADAMW}),
    "six-and-two": (served(6, 2, "stale", 1), {"optimizer": ADAMW, "global_batch": 12}),
    "four-and-four": (served(4, 4, "async"), {"optimizer": SGD}),
    "micro-batches": (
        served(2, 3, "stale", 2, micro_batch=4),
        {"optimizer": {**SGD, "clip_norm": 0.02}, "overlap": {"bucket_mb": 1e-4}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_replay_in_one_process_equals_it(name: str, root: Path, make_spec: Make, own_model: Any) -> None:
    layout, changes = CASES[name]
    model, make = own_model
    spec = make_spec(layout, **{"steps": 8, "schedule": {"name": "constant", "warmup": 3}, **QUIET, **changes})
    spec |= {"model": model, "data": {**spec["data"], "validation": 0.1}}
    workers, ahead = layout["data"], layout["parameter_server"].get("bound", spec["steps"])
    run = run_of(spec, root, name)
    results = spawn(recorded, run.train.layout.world_size, run.model_dump_json())
    servers = results[workers:]
    records = [result["record"] for result in servers]
    replay = Replay(spec, make, [[shard[0] for shard in result["shards"]] for result in servers], records)

    found = {name: value.detach().numpy() for name, value in replay.kept.named_parameters()}
    for key, value in whole_parameters(results).items():
        np.testing.assert_allclose(value, found[key], rtol=0, atol=1e-12, err_msg=key)
    steps = list(range(1, spec["steps"] + 1))
    assert [steps_of(result) for result in results] == [steps] * len(results)
    of_job = [data for kind, data in results[0]["events"] if kind == "step"]
    np.testing.assert_allclose([data["loss"] for data in of_job], replay.losses, rtol=1e-12)
    np.testing.assert_allclose([data["grad_norm"] for data in of_job], replay.norms, rtol=1e-12)
    for record in records:
        assert len(record) == 2 * workers * spec["steps"]
        assert furthest_ahead(record, workers) <= ahead
        assert met(record, spec["steps"], workers)


@pytest.mark.parametrize(
    ("layout", "end"),
    [
        (served(3, 2, "stale", 1), 7),
        pytest.param(served(2, 1, "async"), 7, marks=pytest.mark.full),
        pytest.param(served(3, 2, "stale", 0), 5, marks=pytest.mark.full),
    ],
    ids=["stale", "async", "bound-0"],
)
def test_a_worker_dies_and_returns_and_a_replay_equals_it(
    layout: dict[str, Any], end: int, root: Path, make_spec: Make, own_model: Any
) -> None:
    """Worker 1 takes 4 steps, and the others train on to `end`, their next meeting. There it returns, and takes the steps after that."""
    model, make = own_model
    more = {
        "snapshot": {"every": 3},
        "checkpoint": {"every": end, "final": False},
        "eval": {"every": end, "batches": 1},
    }
    spec = make_spec(
        layout, steps=12, schedule={"name": "constant", "warmup": 3}, optimizer=ADAMW, probe={"every": None}
    )
    spec |= {"model": model, "data": {**spec["data"], "validation": 0.1}, **more}
    run = run_of(spec, root, f"returns-{end}-{layout['data']}")
    workers, world = layout["data"], run.train.layout.world_size
    slots = [shared_memory.allocate() for _ in range(world)]
    try:
        orders = run.model_dump_json()
        first = spawn(partial(recorded, goes=5, memory=(os.getpid(), slots, None)), world, orders, until_all=False)
        assert [shared_memory.steps(own)[-1] for own in slots] == [4 if rank == 1 else end for rank in range(world)]
        second = spawn(partial(recorded, memory=(os.getpid(), slots, end)), world, orders)
    finally:
        for fd in itertools.chain.from_iterable(slots):
            os.close(fd)

    ends = {tuple(data["step"] for kind, data in result["events"] if kind == "stopped") for result in first}
    assert ends == {(end,), ()} and first[1]["events"] == []
    before, after = ([result["record"] for result in results[workers:]] for results in (first, second))
    for record in before:
        assert [line for line in record if line[0] == "leave"] == [("leave", 1, 4)]
    for record in (*before, *after):
        assert furthest_ahead(record, workers) <= layout["parameter_server"].get("bound", spec["steps"])
    records = [lines + list(later(record, end)) for lines, record in zip(before, after, strict=True)]
    replay = Replay(spec, make, [[shard[0] for shard in result["shards"]] for result in second[workers:]], records)
    found = {name: value.detach().numpy() for name, value in replay.kept.named_parameters()}
    for key, value in whole_parameters(second).items():
        np.testing.assert_allclose(value, found[key], rtol=0, atol=1e-12, err_msg=key)

    of_job = [data for result in (first[0], second[0]) for kind, data in result["events"] if kind == "step"]
    known = {data["step"]: data for data in of_job if not data.get("again")}
    assert list(known) == list(range(1, spec["steps"] + 1))
    np.testing.assert_allclose([data["loss"] for data in known.values()], replay.losses, rtol=1e-12)
    np.testing.assert_allclose([data["grad_norm"] for data in known.values()], replay.norms, rtol=1e-12)
    new = {
        kind: [data for k, data in second[0]["events"] if k == kind and not data.get("again")]
        for kind in ("eval", "checkpoint")
    }
    assert [data["step"] for data in new["eval"]][:1] == [end], "what follows the step of the return is done then"
    (saved,) = [data for data in new["checkpoint"] if data["step"] == end]
    assert read(folder_at(saved["path"])).training["updates"] == 4 + (workers - 1) * end


def later(record: list[Line], start: int) -> Iterator[Line]:
    """A record of the next generation, counted on. Only worker 1 needs the first values: the others have the same."""
    for kind, worker, clock in record:
        if clock or worker == 1:
            yield kind, worker, clock + start


@pytest.mark.parametrize("mode", [("async", None), ("stale", 0)], ids=["async", "bound-0"])
def test_one_worker_has_nothing_stale(mode: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    """With validations, clipping and AdamW's count of updates."""
    spec = make_spec(served(1, 2, *mode), steps=4)
    assert_equal(train(spec, root), one_process(spec), 1e-10)


def test_a_bound_of_0_with_plain_gradient_descent_is_data_parallelism(root: Path, make_spec: Make) -> None:
    """All gradients of a step are taken at the same values, and their updates add up. With momentum they do not."""
    apart, together = (
        train(make_spec(layout, steps=4, optimizer=PLAIN), root, name)
        for name, layout in (("apart", served(3, 2, "stale", 0)), ("together", {"data": 3}))
    )
    np.testing.assert_allclose(apart["losses"], together["losses"], rtol=1e-10)
    for key, value in together["parameters"].items():
        np.testing.assert_allclose(apart["parameters"][key], value, rtol=0, atol=1e-10, err_msg=key)
    assert evaluations(apart) == pytest.approx(evaluations(together), rel=1e-10)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (served(1, 2, "async"), {"data": 2, "zero": 1}),
        ({"tensor": 2}, served(1, 2, "async")),
        (served(1, 2, "stale", 1), served(1, 1, "async")),
    ],
    ids=["to-zero", "from-tensor", "to-fewer-servers"],
)
def test_checkpoints_fit_other_layouts(first: Any, then: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    assert_checkpoints_fit(first, then, root, make_spec, one_process)


def test_a_checkpoint_of_several_workers_is_of_one_clock(root: Path, make_spec: Make) -> None:
    """Its validation on another layout is that of the run, and it counts an update for each push."""
    spec = make_spec(served(2, 2, "async"), steps=4, checkpoint={"every": 2, "final": False})
    saved = train(spec, root, "clock-2")
    (path,) = [data["path"] for kind, data in saved["events"] if kind == "checkpoint" and data["step"] == 2]
    assert read(folder_at(path)).training["updates"] == 2 * 2
    still = {"optimizer": {"lr": 1e-300, "weight_decay": 0.0}, "schedule": {"name": "constant"}}
    then = train(make_spec({}, steps=3, **still), root, "clock-2-then", resume=path)
    assert evaluations(then) == pytest.approx(evaluations(saved)[:1], rel=1e-10)


def test_a_request_to_stop_ends_all_ranks_after_the_same_step(root: Path, make_spec: Make) -> None:
    """The bound keeps the others from the last step, however late a busy machine lets worker 1 run."""
    spec = make_spec(served(3, 2, "stale", 20), steps=60, **QUIET)
    run = run_of(spec, root, "stopped")
    results = spawn(partial(recorded, stops=5), run.train.layout.world_size, run.model_dump_json())
    (ends,) = {tuple(data["step"] for kind, data in result["events"] if kind == "stopped") for result in results}
    (end,) = ends
    assert 5 <= end < 60
    assert all(steps_of(result) == list(range(1, end + 1)) for result in results)
    assert [data["step"] for kind, data in results[0]["events"] if kind == "checkpoint"] == [end]
    assert all(met(result["record"], end, 3) for result in results[3:])


def test_a_trace_has_the_steps_of_all_ranks(root: Path, make_spec: Make) -> None:
    spec = make_spec(served(2, 1, "stale", 2), steps=12, **QUIET)
    run = run_of(spec, root, "traced")
    results = spawn(partial(recorded, traced=2), run.train.layout.world_size, run.model_dump_json())
    steps = {tuple(data["step"] for kind, data in result["events"] if kind == "trace") for result in results}
    ((first, second),) = steps
    assert second == first + 1 and first >= 3


def test_a_loss_that_is_not_finite_is_traced_to_its_worker(root: Path, make_spec: Make, tmp_path: Path) -> None:
    """Before anything is pushed: the other worker never has its numbers."""
    model = broken_model(tmp_path, "float('inf') if dist.get_rank() == 1 else 1.0")
    with pytest.raises(RuntimeError, match="first in the output of 1 on rank 1"):
        train(make_spec(served(2, 1, "async"), model=model, **QUIET), root)


def test_all_ranks_together_send_2_psi_per_worker(root: Path, make_spec: Make) -> None:
    """And two requests to each server, and the first server's answers, one of them with the totals of the probed step."""
    run = train(make_spec(served(3, 2, "async"), steps=2, precision="bf16", eval={"batches": 1}), root)
    (found,) = [data for kind, data in run["events"] if kind == "probe"]
    psi = sum(value.size for value in run["parameters"].values())
    sent = found["traffic_sum"]["parameter_server"]["send"]
    small = 3 * 2 * 2 * 9 + 3 * 3 + 3
    assert (sent["elements"], sent["bytes"]) == (2 * psi * 3 + small, (4 + 2) * psi * 3 + 8 * small)
