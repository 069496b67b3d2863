"""Images of rings, crosses, stripes and squares, drawn from the sample's seed: a data source that needs no download."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
CLASSES = 4


class Shapes:
    """Samples without end: `image` [rows, 3, size, size] (fp32, about −1 to 1) and `label` [rows] (int64)."""

    samples = None

    def __init__(self, size: int, validation_samples: int) -> None:
        self.size, self.validation_samples = size, validation_samples

    def training(self, indices: Numbers, seeds: Numbers) -> Mapping[str, torch.Tensor]:
        """One image per seed; its class is the index modulo the number of classes."""
        labels = indices % CLASSES
        images = np.stack([self._draw(int(label), int(seed)) for label, seed in zip(labels, seeds, strict=True)])
        return {"image": torch.from_numpy(images), "label": torch.from_numpy(labels)}

    validation = training

    def _draw(self, label: int, seed: int) -> NDArray[np.float32]:
        """A shape of a random colour at a random place, in noise."""
        random = np.random.default_rng(seed)
        down, right = random.uniform(-0.3, 0.3, 2)
        y, x = np.meshgrid(*[np.linspace(-1, 1, self.size)] * 2, indexing="ij")
        y, x = y - down, x - right
        ring = np.abs(np.hypot(x, y) - 0.5) < 0.15
        cross = np.minimum(np.abs(x), np.abs(y)) < 0.15
        stripes = np.sin(12 * (x + y)) > 0
        square = np.maximum(np.abs(x), np.abs(y)) < 0.5
        shape = (ring, cross, stripes, square)[label]
        colour = random.uniform(0.3, 1, (3, 1, 1))
        image = colour * shape + 0.1 * random.standard_normal((3, self.size, self.size)) - 0.5
        return image.astype(np.float32)


def shapes(size: int = 16, validation_samples: int = 64) -> Shapes:
    """`data.source` names this function, and `data.options` its arguments."""
    return Shapes(size, validation_samples)
