from shardyard.workers.trainer.lost_ranks import LostRanks


def test_a_listener_learns_of_ranks_that_were_lost_before_and_after() -> None:
    lost, heard = LostRanks(), list[int]()
    lost.add(2)
    lost.listen(heard.append)
    assert heard == [2]
    lost.add(1)
    assert heard == [2, 1]
