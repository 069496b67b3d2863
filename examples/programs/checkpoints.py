"""A script that continues where it stopped: after a fault, after a pause, and as another job.

shardyard run examples/checkpoints.yaml                                  # as a job
torchrun --nproc-per-node 2 examples/programs/checkpoints.py             # the same without Shardyard, in ./checkpoints
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import shardyard

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--every", type=int, default=50, help="steps between two checkpoints")
args = parser.parse_args()

asked: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))  # a paused job has 30 seconds to save and end

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
dist.init_process_group("nccl" if cuda else "gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

first = 0
if (saved := shardyard.resume()) is not None:
    state = saved.load(map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = saved.step
if rank == 0:
    print(f"begins after step {first}", flush=True)

parallel = DistributedDataParallel(model)
for step in range(first + 1, args.steps + 1):
    inputs = torch.randn(16, 20, generator=torch.Generator().manual_seed(step * ranks + rank)).to(device)
    loss = (parallel(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    shardyard.log({"loss": loss.item()}, step=step)
    ending = torch.tensor(float(bool(asked)), device=device)
    dist.all_reduce(ending, op=dist.ReduceOp.MAX)  # all ranks end after the same step
    if rank == 0 and (step % args.every == 0 or step == args.steps or ending):
        shardyard.checkpoint({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, step=step)
    if ending:
        break
dist.destroy_process_group()
