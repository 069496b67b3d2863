import pytest

from shardyard.workers.dry_run.rendezvous import NoRendezvous, check_rendezvous
from shardyard.workers.dry_run.report import Meeting, Message


def send(other: int, batch: int, elements: int = 8) -> Message:
    return Message("send", other, elements, "torch.bfloat16", batch)


def receive(other: int, batch: int, elements: int = 8) -> Message:
    return Message("recv", other, elements, "torch.bfloat16", batch)


def test_messages_that_meet_in_order_pass() -> None:
    check_rendezvous({0: [send(1, 0), receive(1, 1)], 1: [receive(0, 0), send(0, 1)]})


def test_two_that_send_first_wait_for_each_other() -> None:
    with pytest.raises(NoRendezvous, match=r"rank 0 to send 8 of bfloat16 to rank 1; rank 1 to send"):
        check_rendezvous({0: [send(1, 0), receive(1, 1)], 1: [send(0, 0), receive(0, 1)]})


def test_in_one_batch_they_pass() -> None:
    check_rendezvous({0: [send(1, 0), receive(1, 0)], 1: [send(0, 3), receive(0, 3)]})


def test_a_message_that_no_rank_receives_is_found() -> None:
    with pytest.raises(NoRendezvous, match="rank 0 to send"):
        check_rendezvous({0: [send(1, 0)], 1: []})


def test_the_two_ends_must_have_one_size() -> None:
    with pytest.raises(NoRendezvous, match="receive 4 of bfloat16"):
        check_rendezvous({0: [send(1, 0, 8)], 1: [receive(0, 0, 4)]})


def test_a_ring_of_three_passes_only_if_batched() -> None:
    around = {rank: [send((rank + 1) % 3, 0), receive((rank - 1) % 3, 0)] for rank in range(3)}
    check_rendezvous(around)
    with pytest.raises(NoRendezvous):
        check_rendezvous({rank: [send((rank + 1) % 3, 0), receive((rank - 1) % 3, 1)] for rank in range(3)})


def test_one_stage_after_the_other_deadlocks_where_a_rank_has_two() -> None:
    """Ranks 0 and 1 hold stages 0 and 2, 1 and 3: rank 0 sends a second micro-batch while rank 1 returns the first."""
    first = [send(1, 0), send(1, 1), receive(1, 2), receive(1, 3)]
    second = [receive(0, 0), send(0, 1), receive(0, 2), send(0, 3)]
    with pytest.raises(NoRendezvous):
        check_rendezvous({0: first, 1: second})


REDUCE, NORM = "_reduce_scatter_base_ torch.float32 8", "allreduce_ torch.float64 2"


def meetings(**started: tuple[str, int]) -> dict[str, list[Meeting]]:
    """Collectives by their group's ranks: `_0_1=(what, batch)`."""
    return {ranks[1:].replace("_", ","): [Meeting(*one)] for ranks, one in started.items()}


def test_collectives_that_all_ranks_start_in_one_order_pass() -> None:
    both = {"0,1": [Meeting(REDUCE, 0), Meeting(NORM, 1)]}
    check_rendezvous({0: [], 1: []}, {0: both, 1: both})
    with pytest.raises(NoRendezvous, match=r"rank 1 to start `allreduce_ torch.float64 2` in the group of ranks 0,1"):
        check_rendezvous({0: [], 1: []}, {0: both, 1: {"0,1": [Meeting(NORM, 0), Meeting(REDUCE, 1)]}})


def test_a_rank_that_was_not_run_is_always_there() -> None:
    check_rendezvous({0: []}, {0: meetings(_0_1=(REDUCE, 0))})


#: Ranks 0 and 1 are the replicas of a first stage, 2 and 3 those of a last one, which sends to them.
STAGES = {0: [receive(2, 1)], 1: [receive(3, 1)], 2: [send(0, 1)], 3: [send(1, 1)]}


def test_replicas_that_reduce_before_they_send_meet() -> None:
    first, last = meetings(_0_1=(REDUCE, 2)), meetings(_2_3=(REDUCE, 0))
    check_rendezvous(STAGES, {0: first, 1: first, 2: last, 3: last})


def test_a_replica_that_reduces_at_another_place_waits_forever() -> None:
    """Rank 0 waits in its reduction for rank 1, which waits for rank 3, which waits in its reduction for rank 2."""
    started = {
        0: meetings(_0_1=(REDUCE, 0)),
        1: meetings(_0_1=(REDUCE, 2)),
        2: meetings(_2_3=(REDUCE, 2)),
        3: meetings(_2_3=(REDUCE, 0)),
    }
    with pytest.raises(NoRendezvous, match=r"rank 0 to start .*; rank 1 to receive .* from rank 3; rank 2 to send"):
        check_rendezvous(STAGES, started)
