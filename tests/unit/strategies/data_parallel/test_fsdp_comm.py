"""What `fully_shard` sends by on CPUs gives what its own messages give, later: started at the call, there when it is waited for."""

from typing import Any

from harness.ranks import group, spawn

RANKS, ROW = 3, 5


def test_messages_that_go_on_while_others_start() -> None:
    for rank, found in enumerate(spawn(_messages, RANKS)):
        rows = [[100 * sender + RANKS * ROW * message for sender in range(RANKS)] for message in range(4)]
        sums = [[sum(row) + RANKS * (rank * ROW + i) for i in range(ROW)] for row in rows]
        assert found["sums"] == sums
        assert found["on the way"] == [1, 2, 2, 0], "at most two; none where torch reads the result at once"
        assert found["gathered"] == [1.0, 2.0, 3.0]
        assert found["waits"], "without streams a gather that returns nothing has been waited for"


def _messages(rank: int, world: int, port: int) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    from shardyard.strategies.data_parallel.fsdp_comm import GlooAllGather, GlooReduceScatter

    device, world_group = group(rank, world, port), dist.group.WORLD
    assert world_group is not None
    reducer, waiting = GlooReduceScatter(depth=2), []
    results = [reducer.allocate((ROW,), dtype=torch.float64, device=device) for _ in range(4)]
    for number, result in enumerate(results):
        reducer.at_once = number == 3
        first = 100 * rank + world * ROW * number
        mine = torch.arange(first, first + world * ROW, dtype=torch.float64)
        reducer(result, mine, world_group, dist.ReduceOp.SUM)
        waiting.append(len(reducer._pending))
    reducer.settle()
    gathered = torch.zeros(world)
    gathered[rank] = rank + 1
    work = GlooAllGather()(gathered, gathered[rank : rank + 1], world_group)
    if work is not None:
        work.wait()
    sums = [result.tolist() for result in results]
    return {"sums": sums, "on the way": waiting, "gathered": gathered.tolist(), "waits": isinstance(work, dist.Work)}
