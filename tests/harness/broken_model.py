"""A model of the user's own whose outputs are not finite."""

from pathlib import Path
from typing import Any


def broken_model(folder: Path, factor: str = "float('inf')") -> dict[str, Any]:
    """`train.model` of a spec. `factor`: of the last module's outputs, as Python, where `dist` is torch.distributed."""
    (folder / "broken_model.py").write_text(
        "import torch.distributed as dist\nfrom torch import nn\n\n\nclass Broken(nn.Linear):\n    def forward(self, x):\n"
        f"        return super().forward(x) * ({factor})\n\n\n"
        "def make():\n    return nn.Sequential(nn.Embedding(256, 8), Broken(8, 256))\n"
    )
    return {"import": "broken_model:make", "code": str(folder)}
