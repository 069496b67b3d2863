"""The sizes of what is measured: those of a data centre's GPU, and tiny ones with which a CPU tries the scripts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Model:
    """A model, its micro-batch and its sequences."""

    model: Mapping[str, Any]
    micro_batch: int
    seq_len: int

    def spec(self, **changes: Any) -> dict[str, Any]:
        """A train spec that trains it and does nothing else; options that have changing defaults are named."""
        plain = {
            "model": dict(self.model),
            "data": {"seq_len": self.seq_len},
            "precision": "bf16",
            "compile": False,
            "optimizer": {"lr": 1e-4},
            "steps": 100_000,
            "global_batch": self.micro_batch,
            "eval": {"batches": 1},
            "checkpoint": {"final": False},
            "snapshot": {"every": 0},
            "probe": {"every": None},
            "replica_check": {"every": 0},
        }
        return {**plain, **changes}


@dataclass(frozen=True)
class Sizes:
    """`attention`: [batch, heads, key heads, positions, head size]; `models` by name, `small` for what needs no large one.

    `row`: [positions, own width, width] of a row-split layer that is multiplied in chunks. A block is `steps` steps; `turns` pairs of
    blocks are compared. `copy_bytes`: of the copies that measure a link.
    """

    attention: tuple[tuple[int, int, int, int, int], ...]
    backends: tuple[int, int, int, int, int]
    row: tuple[int, int, int]
    models: Mapping[str, Model]
    small: Model
    steps: int
    turns: int
    warm: int
    copy_bytes: int


def _heads(*shapes: tuple[int, int, int]) -> tuple[tuple[int, int, int, int, int], ...]:
    return tuple((2, heads, key_heads, 512, size) for heads, key_heads, size in shapes)


# Vocabularies are those of published models, whatever the tokenizer, so that a model has the number of parameters of its name. The
# slice of 8B has a smaller one: with it embedding and head take about the share of a step's arithmetic that they have in 32 blocks.
FULL = Sizes(
    attention=_heads((8, 8, 64), (8, 2, 64), (8, 8, 128), (8, 2, 128), (4, 4, 256), (8, 2, 256)),
    backends=(2, 32, 8, 4096, 128),
    row=(8192, 14336 // 8, 4096),  # of 8B over eight ranks
    models={
        "124M": Model({"preset": "124M", "vocab": 50304}, 8, 2048),
        "1.3B": Model({"preset": "1.3B", "vocab": 50304}, 4, 2048),
        "8B slice": Model({"preset": "8B", "layers": 4, "vocab": 32768}, 2, 4096),
    },
    small=Model({"preset": "124M", "vocab": 50304}, 8, 2048),
    steps=6,
    turns=5,
    warm=4,
    copy_bytes=1 << 30,
)

TINY = Sizes(
    attention=((1, 2, 2, 32, 64), (1, 4, 2, 32, 128)),
    backends=(1, 4, 2, 64, 32),
    row=(64, 16, 32),
    models={"nano": Model({"preset": "nano", "layers": 2}, 2, 64)},
    small=Model({"preset": "nano", "layers": 2}, 2, 64),
    steps=2,
    turns=2,
    warm=3,
    copy_bytes=1 << 22,
)
