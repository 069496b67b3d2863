"""Fully sharded data parallelism with PyTorch's `fully_shard` (FSDP2), on made-up data.

shardyard run examples/fsdp2.yaml                                        # as a job
torchrun --nproc-per-node 2 examples/programs/fsdp2.py                   # the same without Shardyard
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

STEPS, BATCH = 10, 32

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
dist.init_process_group("nccl" if cuda else "gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
layer = torch.nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), torch.nn.Linear(32, 1))
model.to(device)
mesh = init_device_mesh(device.type, (ranks,))
for block in model[0].layers:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

draw = torch.Generator().manual_seed(1)
for step in range(STEPS):
    batch = torch.randn(BATCH, 16, 32, generator=draw)
    mine = batch[rank::ranks].to(device)
    optimizer.zero_grad()
    loss = (model(mine).squeeze(-1) - mine.sum(-1)).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step + 1}: loss {total.item() / ranks:.12f}", flush=True)
dist.destroy_process_group()
