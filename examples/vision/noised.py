"""Images and videos with the noise and the time of a diffusion step: each sample's are drawn from its seed."""

from collections.abc import Mapping

import numpy as np
import torch
from images import CLASSES, Numbers, Shapes
from numpy.typing import NDArray


class Noised(Shapes):
    """`Shapes` with `noise`, as large as `image`, and `time` [rows] between 0 and 1."""

    def training(self, indices: Numbers, seeds: Numbers) -> Mapping[str, torch.Tensor]:
        fields = self.pictures(indices, seeds)
        shape = tuple(fields["image"].shape[1:])
        generators = [np.random.default_rng([int(seed), 1]) for seed in seeds]
        noise = np.stack([random.standard_normal(shape, np.float32) for random in generators])
        time = np.array([random.random(dtype=np.float32) for random in generators])
        return {**fields, "noise": torch.from_numpy(noise), "time": torch.from_numpy(time)}

    validation = training

    def pictures(self, indices: Numbers, seeds: Numbers) -> Mapping[str, torch.Tensor]:
        """What is noised: `image` and `label`."""
        return super().training(indices, seeds)


class Moving(Noised):
    """Videos: `image` [rows, 3, frames, size, size] is a shape that moves to the right, one pixel per frame."""

    def __init__(self, size: int, validation_samples: int, frames: int) -> None:
        super().__init__(size, validation_samples)
        self.frames = frames

    def pictures(self, indices: Numbers, seeds: Numbers) -> Mapping[str, torch.Tensor]:
        labels = indices % CLASSES
        videos = [self._move(self._draw(int(label), int(seed))) for label, seed in zip(labels, seeds, strict=True)]
        return {"image": torch.from_numpy(np.stack(videos)), "label": torch.from_numpy(labels)}

    def _move(self, image: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.stack([np.roll(image, frame, -1) for frame in range(self.frames)], 1)


def images(size: int = 16, validation_samples: int = 64) -> Noised:
    """`data.source` names this function for images."""
    return Noised(size, validation_samples)


def videos(size: int = 16, validation_samples: int = 64, frames: int = 8) -> Moving:
    """`data.source` names this function for videos."""
    return Moving(size, validation_samples, frames)
