"""Long spectrograms of spoken digits, as a synthesiser without a voice would draw them: each digit is two tones of any length."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
BANDS = 16


class Spoken:
    """Samples without end: `frames` [rows, length, 16] (fp32), and the `digits` [rows, digits] (int64, 1 to 10) that they say."""

    samples = None
    validation_samples = 32

    def __init__(self, length: int, digits: int) -> None:
        self.length, self.digits = length, digits

    def training(self, indices: Numbers, seeds: Numbers) -> Mapping[str, torch.Tensor]:  # noqa: ARG002
        """One recording per seed."""
        drawn = [self._speak(np.random.default_rng(seed)) for seed in seeds]
        frames, digits = (np.stack(part) for part in zip(*drawn, strict=True))
        return {"frames": torch.from_numpy(frames), "digits": torch.from_numpy(digits)}

    validation = training

    def _speak(self, random: np.random.Generator) -> tuple[NDArray[np.float32], Numbers]:
        digits = random.integers(1, 11, self.digits)
        frames = 0.1 * random.standard_normal((self.length, BANDS))
        ends = np.sort(random.choice(np.arange(1, self.length), self.digits, replace=False))
        for digit, start, end in zip(digits, [0, *ends[:-1]], ends, strict=True):
            frames[start:end, [digit, (digit * 3) % BANDS]] += 1
            frames[end - 1] = 0  # a short silence
        return frames.astype(np.float32), digits


def spoken(length: int = 1024, digits: int = 12) -> Spoken:
    """`data.source` names this function."""
    return Spoken(length, digits)
