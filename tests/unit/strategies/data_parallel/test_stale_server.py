"""Three workers and two servers: a serial replay of the recorded orders, which shares no code with them, has the same bits."""

import os
import signal
from threading import Thread
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from harness.patience import PATIENCE_S
from harness.ranks import group, spawn

from shardyard.strategies.data_parallel.stale_server import StaleServer, StaleWorker, pair_groups

WORKERS, SERVERS, CLOCKS, RATE, DIES_AFTER = (0, 1, 2), (3, 4), 6, 0.01, 2
SIZES = (5, 3)
Record = list[tuple[str, int, int]]


def gradient(worker: int, clock: int, values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of a squared error over rows of the worker's own; it depends on the values of both servers."""
    draw = torch.Generator().manual_seed(100 * worker + clock)
    rows = torch.randn(4, sum(SIZES), generator=draw, dtype=torch.float64)
    error = rows @ torch.cat(values) - 1.0
    return list((2 * rows.T @ error).split(SIZES))


def first_values() -> list[torch.Tensor]:
    return [torch.full((size,), 0.5, dtype=torch.float64) for size in SIZES]


def work(rank: int, world: int, port: int, bound: int | None, dies: bool) -> Any:
    if dies and rank == WORKERS[-1]:
        return killed(rank, world, port)
    group(rank, world, port)
    groups = pair_groups(WORKERS, SERVERS)
    if rank in SERVERS:
        return serve(SERVERS.index(rank), groups, bound)
    return compute(rank, StaleWorker(list(groups.values()), SIZES, torch.float64), CLOCKS)


def serve(number: int, groups: Any, bound: int | None) -> Any:
    values = first_values()[number]
    server = StaleServer(values, lambda grad: values.sub_(RATE * grad), groups, bound)
    server.serve()
    return [(one.kind, one.worker, one.clock) for one in server.record], values.tolist(), sorted(server.lost)


def compute(rank: int, worker: StaleWorker, clocks: int) -> None:
    for clock in range(clocks):
        values = worker.pull()
        for _ in range(30 * rank):  # workers of different speed
            gradient(rank, clock, values)
        worker.push(gradient(rank, clock, values))
    worker.leave()


def killed(rank: int, world: int, port: int) -> int:
    """The signal that ended a process, which was this worker until then."""
    child = os.fork()
    if child == 0:
        group(rank, world, port)
        worker = StaleWorker(list(pair_groups(WORKERS, SERVERS).values()), SIZES, torch.float64)
        for clock in range(DIES_AFTER):
            worker.push(gradient(rank, clock, worker.pull()))
        worker.pull()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def replay(records: list[Record]) -> list[list[float]]:
    """One process: each server's lines in its order; a push waits until its worker has pulled from all servers."""
    values, left = first_values(), [list(record) for record in records]
    seen: dict[tuple[int, int], dict[int, torch.Tensor]] = {}
    while any(left):
        before = sum(map(len, left))
        for number, lines in enumerate(left):
            while lines:
                kind, worker, clock = lines[0]
                pulled = seen.setdefault((worker, clock), {})
                if kind == "pull":
                    pulled[number] = values[number].clone()
                elif len(pulled) == len(SIZES):
                    grad = gradient(worker, clock, [pulled[one] for one in range(len(SIZES))])[number]
                    values[number] = values[number] - RATE * grad
                else:
                    break
                lines.pop(0)
        assert sum(map(len, left)) < before, "the records are of no possible run"
    return [one.tolist() for one in values]


def furthest_ahead(record: Record, gone: set[int]) -> int:
    """The most clocks by which a pull was ahead of the slowest worker that is not `gone`."""
    clocks = dict.fromkeys(WORKERS, 0)
    most = 0
    for kind, worker, clock in record:
        assert clock == clocks[worker]
        if kind == "push":
            clocks[worker] += 1
        elif worker not in gone:
            behind = min(clocks[one] for one in WORKERS if one not in gone)
            most = max(most, clock - behind)
    return most


@pytest.mark.parametrize(
    "bound", [1, pytest.param(0, marks=pytest.mark.full), pytest.param(None, marks=pytest.mark.full)]
)
def test_a_replay_of_the_recorded_order_has_the_same_bits(bound: int | None) -> None:
    results = spawn(work, 5, bound, False)[len(WORKERS) :]
    records = [record for record, _, _ in results]
    assert [found for _, found, _ in results] == replay(records)
    assert [lost for *_, lost in results] == [[], []]
    for record in records:
        assert sorted(record) == [(kind, w, c) for kind in ("pull", "push") for w in WORKERS for c in range(CLOCKS)]
        assert bound is None or furthest_ahead(record, set()) <= bound


def test_a_worker_that_is_killed_does_not_stop_the_others() -> None:
    """Under a bound that would hold them if it still counted."""
    *_, ended, first, second = spawn(work, 5, 1, True)
    assert ended == signal.SIGKILL
    records = [first[0], second[0]]
    assert [first[1], second[1]] == replay(records)
    for record, _, lost in (first, second):
        assert lost == [WORKERS[-1]]
        pushes = [(worker, clock) for kind, worker, clock in record if kind == "push"]
        others = [(worker, clock) for worker in WORKERS[:-1] for clock in range(CLOCKS)]
        assert sorted(pushes) == others + [(WORKERS[-1], clock) for clock in range(DIES_AFTER)]
        assert furthest_ahead(record, {WORKERS[-1]}) <= 1


def unconnected(bound: int | None) -> StaleServer:
    """A server of three workers, of which each request is made here."""
    values = torch.zeros(1)
    groups = dict.fromkeys(WORKERS, cast(dist.ProcessGroup, None))
    return StaleServer(values, values.add_, groups, bound)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_the_bound_is_the_number_of_clocks_that_a_worker_may_be_ahead(bound: int) -> None:
    server = unconnected(bound)
    for _ in range(bound):
        server._push(0, torch.ones(1))
    assert [server._may_pull(worker) for worker in WORKERS] == [True] * 3
    server._push(0, torch.ones(1))
    assert [server._may_pull(worker) for worker in WORKERS] == [False, True, True]
    server._push(1, torch.ones(1))
    assert not server._may_pull(0), "worker 2 has not pushed"
    server._push(2, torch.ones(1))
    assert server._may_pull(0)
    assert unconnected(None)._may_pull(0)


def test_a_pull_that_must_wait_sees_the_push_that_ends_its_wait() -> None:
    server, found = unconnected(0), []
    server._push(0, torch.full((1,), 1.0))
    server._push(1, torch.full((1,), 10.0))
    waiting = Thread(target=lambda: found.append(server._pull(0)), daemon=True)
    waiting.start()
    server._push(2, torch.full((1,), 100.0))
    waiting.join(PATIENCE_S)
    assert [values.item() for values in found] == [111.0]
    assert [(one.kind, one.worker, one.clock) for one in server.record][-2:] == [("push", 2, 0), ("pull", 0, 1)]


def beside_a_lost_server(rank: int, world: int, port: int) -> Any:
    if rank == 1:
        child = os.fork()
        if child == 0:
            group(rank, world, port)
            pair_groups([0], [1])
            os.kill(os.getpid(), signal.SIGKILL)
        return os.WTERMSIG(os.waitpid(child, 0)[1])
    group(rank, world, port)
    worker = StaleWorker(list(pair_groups([0], [1]).values()), [1], torch.float64)
    with pytest.raises(RuntimeError):
        worker.pull()
    return None


@pytest.mark.full
def test_a_lost_server_is_an_error_of_its_workers() -> None:
    assert spawn(beside_a_lost_server, 2) == [None, signal.SIGKILL]
