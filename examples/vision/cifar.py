"""Images of CIFAR-10's binary files: `data_batch_*.bin` for training, `test_batch.bin` for validation.

A record is one byte of label and 3,072 bytes of red, green and blue rows of 32 × 32 pixels. Files are mapped, not read: a rank's memory
holds only what it needs.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE


class Files:
    """`image` [rows, 3, 32, 32] (fp32, from −1 to 1) and `label` [rows] (int64). Training images are mirrored by the sample's seed."""

    def __init__(self, folder: Path) -> None:
        self._training = [_records(path) for path in sorted(folder.glob("data_batch_*.bin"))]
        if not self._training:
            raise FileNotFoundError(f"{folder} has no data_batch_*.bin: download the binary version of CIFAR-10")
        self._validation = _records(folder / "test_batch.bin")
        self._ends = np.cumsum([len(part) for part in self._training])
        self.samples, self.validation_samples = int(self._ends[-1]), len(self._validation)

    def training(self, indices: Numbers, seeds: Numbers) -> Mapping[str, torch.Tensor]:
        files = np.searchsorted(self._ends, indices, side="right")
        first = np.concatenate([[0], self._ends])[files]
        rows = [self._training[file][row] for file, row in zip(files, indices - first, strict=True)]
        fields = _fields(np.stack(rows))
        mirrored = torch.from_numpy(seeds % 2 == 1)
        fields["image"] = torch.where(mirrored[:, None, None, None], fields["image"].flip(-1), fields["image"])
        return fields

    def validation(self, indices: Numbers, _seeds: Numbers) -> Mapping[str, torch.Tensor]:
        return _fields(self._validation[indices])


def _records(path: Path) -> NDArray[np.uint8]:
    """The file's records [records, 3073]."""
    size = path.stat().st_size
    if size == 0 or size % RECORD:
        raise ValueError(f"{path} has {size:,} bytes, and a record of CIFAR-10 has {RECORD:,}")
    return np.memmap(path, np.uint8, "r", shape=(size // RECORD, RECORD))


def _fields(records: NDArray[np.uint8]) -> dict[str, torch.Tensor]:
    """Of records [rows, 3073]."""
    pixels = torch.from_numpy(records[:, 1:].astype(np.float32)).view(-1, 3, SIDE, SIDE)
    return {"image": pixels / 127.5 - 1, "label": torch.from_numpy(records[:, 0].astype(np.int64))}


def images(folder: str) -> Files:
    """`data.source` names this function, and `data.options` its argument."""
    return Files(Path(folder).expanduser())
