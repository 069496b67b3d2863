"""Data parallelism with PyTorch's DistributedDataParallel, on made-up data. It saves a snapshot after each epoch and continues from it.

shardyard run examples/ddp.yaml                                          # as a job
torchrun --nproc-per-node 2 examples/programs/ddp.py                     # the same without Shardyard
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=32, help="sequences of all ranks in a step")
parser.add_argument("--snapshot", type=Path, help="file on storage that all nodes see")
args = parser.parse_args()

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
dist.init_process_group("nccl" if cuda else "gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
inputs = torch.randn(1024, 20)
data = TensorDataset(inputs, inputs @ torch.randn(20, 1) + 0.1 * torch.randn(1024, 1))
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

first_epoch = 0
if args.snapshot and args.snapshot.exists():
    saved = torch.load(args.snapshot, map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first_epoch = saved["epoch"]
parallel = DistributedDataParallel(model)

sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=args.batch // ranks, sampler=sampler)
for epoch in range(first_epoch, args.epochs):
    total = torch.zeros((), device=device)
    for features, target in loader:
        optimizer.zero_grad()
        loss = (parallel(features.to(device)) - target.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.detach() / len(loader)
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch + 1}: loss {total.item() / ranks:.12f}", flush=True)
        if args.snapshot:
            partial = args.snapshot.with_suffix(".partial")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            torch.save(state, partial)
            partial.replace(args.snapshot)
dist.destroy_process_group()
