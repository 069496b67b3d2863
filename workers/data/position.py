"""Where a training stands in its data: how many samples it has read, and of which order of samples.

The rule: a step reads the samples after those that earlier steps have read, whatever their global batch was. Which window of tokens a
sample is depends on corpus, tokenizer, `seq_len`, validation split and seed, so that a position means nothing where one of them is
another. Imports no torch: the API compares a checkpoint with a spec.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...strategies.layout import Refusal
from ..spec import TrainSpec


@dataclass(frozen=True)
class SampleOrder:
    """What decides which window of tokens a sample is. `corpus` and `tokenizer` are hashes of their content."""

    corpus: str
    tokenizer: str
    seq_len: int
    validation: float
    seed: int


#: Part of an order → the field of the spec that decides on it, and of a hash, of what. `corpus` comes last: a tokenizer changes it too.
_PARTS: Final = {
    "seq_len": ("data.seq_len", ""),
    "validation": ("data.validation", ""),
    "seed": ("seed", ""),
    "tokenizer": ("data.tokenizer", "tokenizer"),
    "corpus": ("data", "text"),
}


class Position:
    """The samples that each step reads. Steps count from 1."""

    def __init__(self, order: SampleOrder, global_batch: int) -> None:
        self.order, self._global_batch = order, global_batch
        # The step of an earlier run after which this one begins, and what had been read by then.
        self._step = self._samples = self._tokens = 0

    def first_sample(self, step: int) -> int:
        """The number of the sample with which `step` begins."""
        return self._samples + (step - 1 - self._step) * self._global_batch

    def tokens(self, step: int) -> int:
        """Tokens that were trained on up to the end of `step`, by earlier runs too."""
        return self._tokens + (step - self._step) * self._global_batch * self.order.seq_len

    def state(self, step: int) -> dict[str, Any]:
        """What `restore` needs to go on after `step`."""
        return {"samples": self.first_sample(step + 1), "tokens": self.tokens(step), **asdict(self.order)}

    def restore(self, step: int, saved: Mapping[str, Any], restart: bool = False) -> None:
        """Go on after `step` from what `state` gave, or with `restart` from the first sample. Raises `Refusal` of another order."""
        if not restart:
            refuse_other_order(saved, asdict(self.order))
        self._step, self._tokens = step, int(saved["tokens"])
        self._samples = 0 if restart else int(saved["samples"])


def known_order(spec: TrainSpec) -> dict[str, Any]:
    """What a spec alone says of its order of samples."""
    data = spec.data
    said = {"seq_len": data.seq_len, "validation": data.validation, "seed": spec.seed}
    return said | ({"tokenizer": "bytes"} if data.tokenizer == "bytes" else {})


def refuse_other_order(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raises `Refusal` where both name a part of their order of samples and it differs."""
    for part, (field, hashed) in _PARTS.items():
        if part in saved and part in here and saved[part] != here[part]:
            other = f"another {hashed}" if hashed else f"{saved[part]}, not {here[part]}"
            back = f"Give it the same {hashed}" if hashed else f"Set {field} to {saved[part]}"
            raise Refusal(
                field,
                f"the checkpoint was trained with {other}, so its position in the data means nothing here.",
                f"{back}; or submit it with resume_from and resume_data: restart: weights and optimizer go on, data from the first sample.",
            )
