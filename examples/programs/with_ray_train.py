"""A script that uses Ray Train, as its documentation shows: a linear model in data-parallel training, and a checkpoint of each epoch.

It continues from the newest one.
"""

import os
import tempfile
from pathlib import Path

import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset


def train_loop(config: dict[str, float]) -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    y = x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    loader = prepare_data_loader(DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True))
    bare = torch.nn.Linear(4, 1)
    model = prepare_model(bare)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    first = 0
    if (saved := ray.train.get_checkpoint()) is not None:  # of this start, or in a job of an earlier one
        with saved.as_directory() as folder:
            state = torch.load(Path(folder) / "model.pt", weights_only=True)
        bare.load_state_dict(state["model"])
        first = state["epoch"] + 1
    for epoch in range(first, int(config["epochs"])):
        if ray.train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save({"model": bare.state_dict(), "epoch": epoch}, Path(folder) / "model.pt")
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item(), "epoch": epoch}, checkpoint=checkpoint)


if __name__ == "__main__":
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"lr": 0.1, "epochs": 3},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=os.environ["SHARDYARD_JOB_STORAGE"]),
    )
    result = trainer.fit()
    print(f"the last epoch has loss {result.metrics['loss']:.4f}")
