"""Precision: the compute dtype, the dtype that is kept, and the dynamic loss scale of fp16.

Weights and optimizer state are kept in fp32 (fp64 for proofs); bf16 and fp16 compute with a copy (Micikevicius et al., 1710.03740).
A micro-batch's gradient has the compute dtype. Sums of them are made in fp32: bf16 keeps 8 bits, and a sum of n summands of similar
size loses the last log2(n) bits of each, which at 1,024 micro-batches is a fifth of the gradient. fp8 is bf16 in which the blocks'
linear layers multiply in 8 bits (`fp8.py`).
"""

import math
from dataclasses import asdict, dataclass
from typing import Final, Self

import torch

#: Steps in a row that may be skipped at the lowest loss scale. Then no loss scale helps.
MAX_SKIPPED_AT_FLOOR: Final = 16


@dataclass(frozen=True)
class Precision:
    """`compute`: dtype of the model's weights and activations. `master`: dtype of the optimizer.

    `wide_gradients`: gradients are summed over micro-batches and ranks in the master's dtype, else in the compute dtype. `fp8`: linear
    layers of blocks multiply in 8 bits; `emulated`: in 8-bit values by fp32 arithmetic, on any device (for proofs).
    """

    name: str
    compute: torch.dtype
    master: torch.dtype
    fp8: bool = False
    emulated: bool = False
    wide_gradients: bool = True

    @property
    def gradients(self) -> torch.dtype:
        """The dtype in which gradients are summed."""
        return self.master if self.wide_gradients else self.compute

    @property
    def mixed(self) -> bool:
        return self.compute != self.master


PRECISIONS = {
    "fp64": Precision("fp64", torch.float64, torch.float64),
    "fp32": Precision("fp32", torch.float32, torch.float32),
    "bf16": Precision("bf16", torch.bfloat16, torch.float32),
    "fp16": Precision("fp16", torch.float16, torch.float32),
    "fp8": Precision("fp8", torch.bfloat16, torch.float32, fp8=True),
}


@dataclass
class LossScale:
    """Dynamic loss scale: halved when a gradient overflows (the step is skipped), doubled after `interval` good steps.

    It begins at `begin`, and never falls below `floor`. After `max_skipped` skipped steps in a row it is exhausted.
    """

    scale: float = 2.0**16
    good_steps: int = 0
    skipped: int = 0  # steps in a row
    interval: int = 2000
    floor: float = 1.0
    begin: float = 2.0**16

    @classmethod
    def for_tokens(cls, tokens: int) -> Self:
        """The loss scale of a step of `tokens` tokens. The token loss divides it by them, so that it begins at the number of tokens, as a
        power of two, from 2^16 tokens on: the gradient of a token's logits would else underflow (its least value is 2^-24).
        """
        begin = max(2.0**16, 2.0 ** (tokens.bit_length() - 1))
        return cls(begin, begin=begin)

    @property
    def ceiling(self) -> float:
        return self.begin * 2**8

    @property
    def max_skipped(self) -> int:
        """Skipped steps in a row that lead from the highest loss scale to the lowest, and the tries there."""
        return round(math.log2(self.ceiling / self.floor)) + MAX_SKIPPED_AT_FLOOR

    def update(self, overflow: bool) -> None:
        if overflow:
            self.scale = max(self.floor, self.scale / 2)
            self.good_steps = 0
            self.skipped += 1
            return
        self.skipped = 0
        self.good_steps += 1
        if self.good_steps >= self.interval:
            self.scale = min(self.ceiling, self.scale * 2)
            self.good_steps = 0

    @property
    def exhausted(self) -> bool:
        """Whether no loss scale helps."""
        return self.skipped >= self.max_skipped

    def state(self) -> dict[str, float]:
        return asdict(self)

    def restore(self, state: dict[str, float]) -> None:
        """Continue from a result of `state`, also of a step of fewer or more tokens: by the ratio of what both begin with.

        Checkpoints of earlier versions do not say what theirs began with. They continue with the same scale.
        """
        self.scale = max(self.floor, float(state["scale"]) * self.begin / float(state.get("begin", self.begin)))
        self.good_steps, self.skipped = int(state["good_steps"]), int(state["skipped"])


def loss_scale_for(precision: Precision, tokens: int) -> LossScale | None:
    """The loss scale for fp16, whose exponent is narrow, and a step of `tokens` tokens; None for other precisions."""
    return LossScale.for_tokens(tokens) if precision.name == "fp16" else None
