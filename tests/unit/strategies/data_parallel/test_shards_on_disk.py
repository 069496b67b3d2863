"""`fully_shard` with its shards in a file makes the same bits as in memory, and gathers from buffers that were read ahead."""

from pathlib import Path
from typing import Any

import pytest
from harness.ranks import group, spawn

STEPS = 4


@pytest.mark.parametrize("mixed", [True, False])
def test_the_same_bits_as_in_memory_from_what_was_read_ahead(mixed: bool, tmp_path: Path) -> None:
    memory, disk = (spawn(_train, 2, folder, mixed) for folder in (None, str(tmp_path)))
    for expected, found in zip(memory, disk, strict=True):
        assert found["values"] == expected["values"] and found["losses"] == expected["losses"]
        assert found["on disk"] and not expected["on disk"]
        assert found["asked"][0] > 0 and found["asked"][1:] == [0] * (STEPS - 1)
    assert not any(tmp_path.iterdir())


def _train(rank: int, world: int, port: int, folder: str | None, mixed: bool) -> dict[str, Any]:
    """Some steps of plain SGD. `asked`: reads of each step that were not made ahead."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    from shardyard.strategies.activation_memory.disk_read_ahead import DiskReadAhead
    from shardyard.strategies.activation_memory.state_file import StateFile
    from shardyard.strategies.data_parallel.shards_on_disk import ShardsOnDisk

    class Model(nn.Module):
        """An embedding of the root's own, and blocks whose rows two ranks do not divide."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(5, 7)
            self.blocks = nn.ModuleList(nn.Linear(7, 7) for _ in range(5))
            self.frozen = nn.Parameter(torch.randn(7), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x) + self.frozen
            for block in self.blocks:
                x = x + block(x).tanh()
            return x

    asked, slot_with = [0], DiskReadAhead._slot_with

    def noted(ahead: DiskReadAhead, number: int) -> Any:
        asked[-1] += not any(slot.group == number for slot in ahead._slots)
        return slot_with(ahead, number)

    DiskReadAhead._slot_with = noted  # type: ignore[method-assign]
    group(rank, world, port)
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model, file = Model(), None if folder is None else StateFile(Path(folder))
    disk = None if file is None else ShardsOnDisk(file)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    for module in (*model.blocks, model):
        shard = fully_shard(module, mesh=mesh, mp_policy=policy, offload_policy=CPUOffloadPolicy(pin_memory=False))
        shard.set_gradient_divide_factor(1.0)
        shard.set_force_sum_reduction_for_comms(True)
        if disk is not None:
            disk.keep(shard)
    losses = []
    for step in range(STEPS):
        loss = model(torch.randn(3, 5, generator=torch.Generator().manual_seed(step + rank))).float().square().mean()
        loss.backward()
        losses.append(loss.item())
        if disk is not None:
            disk.pause()
        with torch.no_grad():
            for value in model.parameters():
                if value.grad is not None:
                    value.to_local().sub_(0.1 * value.grad.to_local())  # type: ignore[attr-defined]
                    value.grad = None
        if disk is not None:
            disk.resume()
        asked.append(0)
    with torch.no_grad():
        values = [value.to_local() for value in model.parameters()]  # type: ignore[attr-defined]
    on_disk = file is not None and all(file.holds(value) for value in values if value.numel())
    return {"values": [v.tolist() for v in values], "losses": losses, "asked": asked[:STEPS], "on disk": on_disk}
