"""What ranks exchange about their nodes, through a real store."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from harness.patience import PATIENCE_S
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.program.node_exchange import numbered_ranks, values_of_node
from shardyard.workers.program.program import Program, RayShare

PROGRAM = Program("job", ("torchrun", "train.py"), per_node=True)
#: After a repair: the first node has taken the ranks 4 and 5 of a node that died.
NODES = (0, 0, 1, 1, 0, 0)


def assignment(rank: int) -> RankAssignment:
    node = NODES[rank]
    return RankAssignment(
        rank=rank,
        world_size=len(NODES),
        local_rank=NODES[:rank].count(node),
        local_world_size=NODES.count(node),
        node_rank=node,
        nodes=2,
        master_host="127.0.0.1",
        master_port=0,
    )


def client(store: TCPStore) -> TCPStore:
    return TCPStore("127.0.0.1", store.port, None, is_master=False)


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)


def test_a_launcher_per_node_numbers_ranks_node_by_node(store: TCPStore) -> None:
    with ThreadPoolExecutor(len(NODES)) as pool:
        asked = [pool.submit(numbered_ranks, PROGRAM, client(store), assignment(rank)) for rank in range(len(NODES))]
        assert [one.result(PATIENCE_S) for one in asked] == [[0, 1, 4, 5, 2, 3]] * len(NODES)


@pytest.mark.parametrize("program", [replace(PROGRAM, per_node=False), replace(PROGRAM, ray=RayShare(1 << 30))])
def test_ranks_that_the_job_starts_itself_have_its_numbers(program: Program, store: TCPStore) -> None:
    assert numbered_ranks(program, store, assignment(4)) == [0, 1, 2, 3, 4, 5]


def test_values_of_a_node_are_in_the_order_of_its_local_ranks(store: TCPStore) -> None:
    with ThreadPoolExecutor(len(NODES)) as pool:
        asked = [
            pool.submit(values_of_node, client(store), assignment(rank), "what", f"of {rank}") for rank in (5, 4, 1, 0)
        ]
        assert [one.result(PATIENCE_S) for one in asked] == [["of 0", "of 1", "of 4", "of 5"]] * 4
