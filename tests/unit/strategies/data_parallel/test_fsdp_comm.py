"""What `fully_shard` sends by on CPUs gives what its own messages give, later: started at the call, there when it is waited for."""

from typing import Any

from harness.ranks import group, spawn

RANKS, ROW = 3, 5


def test_messages_that_go_on_while_others_start() -> None:
    for rank, found in enumerate(spawn(_messages, RANKS)):
        rows = [[100 * sender + RANKS * ROW * message for sender in range(RANKS)] for message in range(4)]
        sums = [[sum(row) + RANKS * (rank * ROW + i) for i in range(ROW)] for row in rows]
        assert found["sums"] == sums
        assert found["on the way"] == [1, 2, 2, 0], "at most two; none where torch adds the result to the one before"
        assert found["next step"] == 1
        assert found["gathered"] == [1.0, 2.0, 3.0]
        assert found["waits"], "without streams a gather that returns nothing has been waited for"


def _messages(rank: int, world: int, port: int) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    from shardyard.strategies.data_parallel.fsdp_comm import GlooAllGather, GlooReduceScatter, SumsInTransit

    device, world_group = group(rank, world, port), dist.group.WORLD
    assert world_group is not None
    transit, waiting = SumsInTransit(depth=2), []
    modules = [GlooReduceScatter(transit) for _ in range(3)]
    results = [modules[0].allocate((ROW,), dtype=torch.float64, device=device) for _ in range(4)]
    for number, (module, result) in enumerate(zip([*modules, modules[1]], results, strict=True)):
        first = 100 * rank + world * ROW * number
        mine = torch.arange(first, first + world * ROW, dtype=torch.float64)
        module(result, mine, world_group, dist.ReduceOp.SUM)
        waiting.append(len(transit._pending))
    transit.forget()
    modules[1](torch.empty(ROW, dtype=torch.float64), mine, world_group, dist.ReduceOp.SUM)
    next_step = len(transit._pending)
    transit.settle()
    gathered = torch.zeros(world)
    gathered[rank] = rank + 1
    work = GlooAllGather()(gathered, gathered[rank : rank + 1], world_group)
    if work is not None:
        work.wait()
    sums = [result.tolist() for result in results]
    found = {"sums": sums, "on the way": waiting, "next step": next_step, "gathered": gathered.tolist()}
    return found | {"waits": isinstance(work, dist.Work)}
