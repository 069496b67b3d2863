"""A slice of a published model costs the pages of its own rows."""

from pathlib import Path

import pytest
import torch
from harness.decoders import tiny
from safetensors.torch import save_file

from shardyard.workers.huggingface.import_weights import Pretrained

SMAPS = Path("/proc/self/smaps")
ROWS, COLUMNS = 8192, 1024
ROW_BYTES = 4 * COLUMNS
#: What the kernel may map beside the pages that are touched: the rest of a huge page at either end.
AROUND = 2 * (2 << 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    values = torch.arange(ROWS, dtype=torch.float32)[:, None].expand(ROWS, COLUMNS).contiguous()
    save_file({"model.embed_tokens.weight": values}, tmp_path / "model.safetensors")
    return tmp_path


def resident(folder: Path) -> int:
    """Bytes of the folder's files that this process has mapped and touched."""
    found, ours = 0, False
    for line in SMAPS.read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            ours = str(folder) in line
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


@pytest.mark.skipif(not SMAPS.exists(), reason="Linux counts mapped pages in /proc")
def test_own_rows_cost_their_own_bytes(folder: Path) -> None:
    files = Pretrained(folder, tiny("llama"), ["embed.weight"])
    found = files("embed.weight", (ROWS, COLUMNS), (1024, 0), (512, COLUMNS)).clone()
    assert torch.equal(found[:, 5], torch.arange(1024, 1536, dtype=torch.float32))
    assert resident(folder) <= 512 * ROW_BYTES + AROUND
    files("embed.weight", (ROWS, COLUMNS), (0, 0), (ROWS, COLUMNS)).clone()
    assert resident(folder) >= ROWS * ROW_BYTES > 2 * (512 * ROW_BYTES + AROUND)
