import torch
import torch.distributed as dist

from shardyard.workers.dry_run import fake_collectives
from shardyard.workers.dry_run.fake_tensors import FakeStore, FakeTensorMode


def test_several_gathers_in_one_call_return_a_handle() -> None:
    fake_collectives.install()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        group = dist.group.WORLD
        assert group is not None
        with FakeTensorMode():
            work = group.all_gather_single_coalesced([torch.empty(8), torch.empty(4)], [torch.empty(4), torch.empty(2)])
            assert work.wait()
    finally:
        dist.destroy_process_group()
