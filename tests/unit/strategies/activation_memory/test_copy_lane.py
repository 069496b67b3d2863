"""Without a GPU a lane copies at once, in order. (tests/dry/test_race_detector.py has its streams and events.)"""

import torch

from shardyard.strategies.activation_memory.copy_lane import CopyLane, host_like


def test_work_is_done_when_it_is_given() -> None:
    lane, done = CopyLane(torch.device("cpu")), []
    lane.after_current()
    finished = lane.run(lambda: done.append(1))
    assert done == [1]
    finished.wait_on_host()
    finished.wait_on_device()


def test_memory_of_the_host_has_the_same_order() -> None:
    like = torch.zeros(2, 3, dtype=torch.bfloat16, requires_grad=True).t()
    found = host_like(like)
    assert (found.stride(), found.dtype, found.requires_grad) == (like.stride(), torch.bfloat16, False)
