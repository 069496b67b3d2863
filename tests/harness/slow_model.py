"""A model that rests in each step: jobs that train for as long as a test looks at them leave the cores to the other tests."""

from pathlib import Path
from typing import Any

CODE = """
import time

import torch


class Resting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(256, 16)
        self.head = torch.nn.Linear(16, 256)

    def forward(self, tokens):
        time.sleep(0.05)
        return self.head(self.embed(tokens))
"""


def resting(folder: Path) -> dict[str, Any]:
    """The `train.model` of a spec, whose code is written into `folder`. It has no plan for a tensor degree."""
    (folder / "resting.py").write_text(CODE)
    return {"import": "resting:Resting", "code": str(folder)}
