"""Classification of made-up images with Hugging Face Accelerate. It saves its state after each epoch and continues from it.

shardyard run examples/accelerate-images.yaml                                   # as a job
torchrun --nproc-per-node 2 examples/programs/with_accelerate_images.py         # the same without Shardyard
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIZE, BATCH = 3, 16, 32

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--states", type=Path, help="folder on storage that all nodes see")
args = parser.parse_args()

torch.set_default_dtype(torch.float64)
accelerator = Accelerator(
    cpu=not torch.cuda.is_available(),
    # BATCH is that of all ranks, and the order is the same for any number of ranks.
    dataloader_config=DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True),
)


def pictures(count: int, seed: int) -> TensorDataset:
    """Stripes at one of three angles, of random width and place, under noise: images [count, 3, SIZE, SIZE], and their classes."""
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.randint(CLASSES, (count,), generator=draw)
    angle = kinds * torch.pi / CLASSES
    across = torch.arange(SIZE) * torch.cos(angle)[:, None]
    down = torch.arange(SIZE) * torch.sin(angle)[:, None]
    width, place = 0.5 + torch.rand(2, count, 1, 1, generator=draw)
    stripes = torch.sin((down[:, :, None] + across[:, None, :]) * width + 6 * place)
    return TensorDataset(stripes[:, None] + 0.5 * torch.randn(count, 3, SIZE, SIZE, generator=draw), kinds)


torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 5, stride=2),
    torch.nn.GELU(),
    torch.nn.Conv2d(8, 16, 3),
    torch.nn.GELU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(16, CLASSES),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
training = DataLoader(pictures(512, seed=1), batch_size=BATCH, shuffle=True)
evaluation = DataLoader(pictures(100, seed=2), batch_size=BATCH)
model, optimizer, training, evaluation, schedule = accelerator.prepare(model, optimizer, training, evaluation, schedule)

first = 0
if args.states and (saved := sorted(args.states.glob("epoch-*"))):
    accelerator.load_state(str(saved[-1]))
    first = int(saved[-1].name.removeprefix("epoch-"))
for epoch in range(first, args.epochs):
    training.set_epoch(epoch)  # another order in each
    model.train()
    total = 0.0
    for images, kinds in training:
        loss = torch.nn.functional.cross_entropy(model(images), kinds)
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        total += accelerator.reduce(loss.detach(), "mean").item() / len(training)
    model.eval()
    right = seen = 0
    for images, kinds in evaluation:
        with torch.no_grad():
            found = model(images).argmax(1)
        found, wanted = accelerator.gather_for_metrics((found, kinds))  # without those that fill the last batch
        right, seen = right + int((found == wanted).sum()), seen + len(wanted)
    accelerator.print(f"epoch {epoch + 1}: loss {total:.12f}, {right} of {seen} images right", flush=True)
    if args.states:
        partial = args.states / "partial"
        accelerator.save_state(str(partial))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            partial.rename(args.states / f"epoch-{epoch + 1:03}")
        accelerator.wait_for_everyone()
accelerator.free_memory()  # else gloo may abort at the exit
model = optimizer = schedule = loss = None
accelerator.end_training()
