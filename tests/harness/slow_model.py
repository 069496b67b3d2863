"""A model that rests in each step: jobs that train for as long as a test looks at them leave the cores to the other tests."""

from pathlib import Path
from typing import Any

CODE = """
import time

import torch


class SlowModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(256, 16)
        self.head = torch.nn.Linear(16, 256)

    def forward(self, tokens):
        time.sleep(0.05)
        return self.head(self.embed(tokens))
"""


def write_slow_model(folder: Path) -> dict[str, Any]:
    """The `train.model` of a spec, whose code is written into `folder`. It has no plan for a tensor degree."""
    (folder / "slow_model.py").write_text(CODE)
    return {"import": "slow_model:SlowModel", "code": str(folder)}
