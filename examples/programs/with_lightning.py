"""Handwritten-like digits, drawn by formula, and a convolutional classifier with Lightning.

shardyard run examples/lightning.yaml                                    # as a job
torchrun --nproc-per-node 2 examples/programs/with_lightning.py          # the same without Shardyard
"""

import os

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, IMAGES = 3, 64, 512


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, stride=2),
            torch.nn.Tanh(),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 6 * 6, 10),
        )
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(images), labels)
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        mean = self.all_gather(torch.stack(self.losses)).mean()
        self.losses.clear()
        self.print(f"epoch {self.current_epoch + 1}: loss {mean.item():.12f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def digits() -> TensorDataset:
    """Images of 14 × 14: digit d is a wave of d / 2 periods, turned by a random angle, with noise."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (IMAGES,), generator=draw)
    angle = 0.3 * torch.rand(IMAGES, 1, 1, generator=draw)
    x, y = torch.meshgrid(torch.linspace(0, 1, 14), torch.linspace(0, 1, 14), indexing="xy")
    waves = torch.sin(torch.pi * labels[:, None, None] * (x * angle.cos() + y * angle.sin()))
    images = waves + 0.1 * torch.randn(IMAGES, 14, 14, generator=draw)
    return TensorDataset(images[:, None].double(), labels)


lightning.seed_everything(0)
nodes, ranks = int(os.environ.get("GROUP_WORLD_SIZE", "1")), int(os.environ.get("WORLD_SIZE", "1"))
trainer = lightning.Trainer(
    max_epochs=EPOCHS,
    num_nodes=nodes,
    devices=ranks // nodes,
    strategy="ddp",
    precision="64-true",
    accelerator="auto",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Classifier(), DataLoader(digits(), batch_size=BATCH // ranks))
