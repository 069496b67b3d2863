"""A regression with DeepSpeed's ZeRO-2.

shardyard run examples/deepspeed.yaml                                    # as a job
torchrun --nproc-per-node 2 examples/programs/with_deepspeed.py          # the same without Shardyard
"""

import deepspeed
import torch
import torch.distributed as dist

STEPS, BATCH = 10, 32

deepspeed.init_distributed(dist_backend="nccl" if torch.cuda.is_available() else "gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
engine, *_ = deepspeed.initialize(
    model=model,
    config={
        "train_batch_size": BATCH,
        "train_micro_batch_size_per_gpu": BATCH // ranks,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    },
)
for step in range(STEPS):
    draw = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, 16, generator=draw)
    wanted = inputs.square().mean(1, keepdim=True)
    own = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    loss = torch.nn.functional.mse_loss(engine(inputs[own].to(engine.device)), wanted[own].to(engine.device))
    engine.backward(loss)
    engine.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step + 1}: loss {mean.item() / ranks:.6f}", flush=True)
dist.destroy_process_group()
