"""ZeRO++'s three options (Wang et al., 2306.10209): quantised weights, a secondary partition, quantised gradients. Imports no torch.

Each is independent of the others. `data_parallel/zero_plus_plus.py` carries them out.
"""

from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Word = Literal["int8", "int4"]

#: Bits of a quantised number.
BITS: Final[dict[Word, int]] = {"int8": 8, "int4": 4}


class ZeroPlusPlus(BaseModel):
    """How ZeRO's messages are made smaller. Numbers are quantised in blocks of `block`, each with a scale of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: Literal["int8"] | None = Field(
        None, description="ZeRO-3 gathers weights in 8 bits (qwZ): a rank computes with the rounded weights."
    )
    secondary: int | None = Field(
        None,
        ge=2,
        le=65536,
        description="ZeRO-3 keeps a second shard of the gathered weights in groups of this many neighbouring replicas, such as those of a "
        "node (hpZ). From a step's second gather on, weights come from that group.",
    )
    gradients: Word | None = Field(
        None,
        description="ZeRO-1, 2 and 3 reduce gradients by all-to-alls of 8 or 4 bits (qgZ). A number is rounded at most twice on its way, "
        "and added up in fp32 or wider.",
    )
    node: int | None = Field(
        None,
        ge=2,
        le=65536,
        description="Replicas of a node, which are neighbours: quantised gradients are summed among these first, and then across nodes. "
        "null: those of `secondary`; without it all replicas exchange at once.",
    )
    block: int = Field(
        256,
        ge=32,
        le=65536,
        multiple_of=2,
        description="How many numbers of a shard share one scale, which their largest magnitude decides.",
    )

    @model_validator(mode="after")
    def _one_is_given(self) -> Self:
        if self.weights is None and self.secondary is None and self.gradients is None:
            raise ValueError("set weights, secondary or gradients, or leave zero_plus_plus out")
        if self.node is not None and self.gradients is None:
            raise ValueError("only quantised gradients are summed by node: set gradients, or leave node out")
        return self

    @property
    def gradient_node(self) -> int | None:
        """How many replicas sum quantised gradients first; None: all at once, or gradients are not quantised."""
        return None if self.gradients is None else self.node or self.secondary

    def __str__(self) -> str:
        inside = f" by nodes of {self.gradient_node}" if self.gradient_node else ""
        parts = (
            (self.weights, f"{self.weights} weights"),
            (self.secondary, f"secondary {self.secondary}"),
            (self.gradients, f"{self.gradients} gradients{inside}"),
        )
        return ", ".join(words for given, words in parts if given)
