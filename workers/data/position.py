"""A training's position in its data: the number of samples that it has read, and the order of the samples.

A step reads the samples after those that earlier steps have read, whatever their global batch was. The window of tokens of a sample
depends on corpus, tokenizer, `seq_len`, validation split and seed, so a position is only valid if all of them are the same. Imports
no torch: the API compares a checkpoint with a spec.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...strategies.layout import Refusal
from ..spec import TrainSpec
from .tokenizer import BYTES, ENDING_BYTES

#: The source of every corpus of text.
TEXT: Final = "text"


@dataclass(frozen=True)
class SampleOrder:
    """What determines the window of tokens of a sample. `corpus` and `tokenizer` are hashes of their content."""

    corpus: str
    tokenizer: str
    seq_len: int
    validation: float
    seed: int
    source: str = (
        TEXT  # `module:factory` of the user's own; its samples have no text, and one sample counts as one token
    )
    content: str = ""  # hash of what else determines the samples of such a source


#: Part of an order → the spec's field that determines it, and for a hash, what it is of. `corpus` comes last: a tokenizer changes it too.
_PARTS: Final = {
    "source": ("data.source", ""),
    "seq_len": ("data.seq_len", ""),
    "validation": ("data.validation", ""),
    "seed": ("seed", ""),
    "documents": ("data.documents", ""),
    "tokenizer": ("data.tokenizer", "tokenizer"),
    "corpus": ("data", "text"),
    "content": ("data.options", "set of samples"),
}
#: The digest of a byte tokenizer → the value of `data.documents` that chooses it.
_DOCUMENTS: Final = {BYTES: "joined", ENDING_BYTES: "packed"}


class Position:
    """The samples that each step reads. Steps count from 1."""

    def __init__(self, order: SampleOrder, global_batch: int) -> None:
        self.order, self._global_batch = order, global_batch
        # The step of an earlier run after which this one begins, and the number of samples read by then.
        self._step = self._samples = self._tokens = 0

    def first_sample(self, step: int) -> int:
        """The number of the first sample of `step`."""
        return self._samples + (step - 1 - self._step) * self._global_batch

    def tokens(self, step: int) -> int:
        """Tokens trained on up to the end of `step`, including earlier runs."""
        return self._tokens + (step - self._step) * self._global_batch * self.order.seq_len

    def state(self, step: int) -> dict[str, Any]:
        """The data that `restore` needs to continue after `step`."""
        return {"samples": self.first_sample(step + 1), "tokens": self.tokens(step), **asdict(self.order)}

    def restore(self, step: int, saved: Mapping[str, Any], restart: bool = False) -> None:
        """Continue after `step` from `saved`, a result of `state`; with `restart` from the first sample.

        Raises `Refusal` if the order differs.
        """
        if not restart:
            refuse_other_order(saved, asdict(self.order))
        self._step, self._tokens = step, int(saved["tokens"])
        self._samples = 0 if restart else int(saved["samples"])


def known_order(spec: TrainSpec) -> dict[str, Any]:
    """The parts of the order of samples that the spec alone determines."""
    data = spec.data
    if data.is_own:
        return {"source": data.source, "seed": spec.seed}
    known = {"source": TEXT, "seq_len": data.seq_len, "validation": data.validation, "seed": spec.seed}
    return known | ({"tokenizer": ENDING_BYTES if data.is_packed else BYTES} if data.tokenizer == "bytes" else {})


def refuse_other_order(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raises `Refusal` if `saved` and `here` both name a part of their order of samples and it differs."""
    saved, here = _with_documents(saved), _with_documents(here)
    for part, (field, hashed) in _PARTS.items():
        if part in saved and part in here and saved[part] != here[part]:
            other = f"another {hashed}" if hashed else f"{saved[part]}, not {here[part]}"
            back = f"Use the same {hashed}" if hashed else f"Set {field} to {saved[part]}"
            raise Refusal(
                field,
                f"the checkpoint was trained with {other}, so its position in the data is not valid here.",
                f"{back}; or submit it with resume_from and resume_data: restart: weights and optimizer continue, data starts over.",
            )


def _with_documents(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """`order` with the value of `data.documents` that chose its tokenizer, if that is one of bytes."""
    documents = _DOCUMENTS.get(order.get("tokenizer", ""))
    return order if documents is None else {**order, "documents": documents}
