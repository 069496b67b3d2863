"""The textbook's loops for packed documents: they train each document of a sequence by itself, one after the other, without any mask.

So what a mask must not let through is not there. They share no code with ours. Documents are the records of JSONL files.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from harness.textbook import Corpus, Spec, Textbook
from harness.textbook_delayed import Delayed, NotDelayed, Stashed
from harness.textbook_mixture import MixtureTextbook

END = 0xFF


def save_records(root: Path) -> dict[str, Any]:
    """The data of a spec: documents of 1 to 40 letters. Most windows of 32 hold several, some the end of none."""
    rng, path = np.random.default_rng(5), root / "documents.jsonl"
    letters = np.frombuffer(b"etaoin shrdlu", dtype=np.uint8)
    records = [rng.choice(letters, rng.integers(1, 41)).tobytes().decode() for _ in range(900)]
    path.write_text("".join(json.dumps({"text": record}) + "\n" for record in records))
    return {"source": "text", "files": [str(path)], "field": "text"}


class RecordsCorpus(Corpus):
    """The field `text` of each record as bytes, 0xFF after each."""

    def __init__(self, files: list[str], seq_len: int, validation: float) -> None:
        records = [json.loads(line)["text"] for file in files for line in Path(file).read_text().splitlines()]
        tokens = b"".join(record.encode() + bytes([END]) for record in records)
        cut = len(tokens) - round(len(tokens) * validation)
        self.seq_len = seq_len
        self.splits = {"train": tokens[:cut], "validation": tokens[cut:]}


def documents_of(row: list[int]) -> list[list[int]]:
    """The documents of a row of `seq_len` tokens and the one after it; each but the last has its end."""
    found: list[list[int]] = [[]]
    for token in row:
        found[-1].append(token)
        if token == END:
            found.append([])
    return [document for document in found if document]


class PackedTextbook(Textbook):
    """`Textbook` for `data.documents: packed`."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        data = spec["data"]
        self.corpus = RecordsCorpus(data["files"], data["seq_len"], data["validation"])

    def loss(self, rows: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
        """The mean over all tokens of all documents that have a next token in their document."""
        losses = []
        for row in rows.tolist():
            for document in self.documents(row):
                if len(document) == 1:  # nothing follows
                    continue
                logits = self.model(input_ids=torch.tensor([document[:-1]]), use_cache=False).logits[0]
                log_z = logits.logsumexp(-1)
                at_target = logits.gather(-1, torch.tensor(document[1:])[:, None]).squeeze(-1)
                cross_entropy = log_z - (1 - label_smoothing) * at_target - label_smoothing * logits.mean(-1)
                losses.append(cross_entropy + z_loss * log_z.square())
        return torch.cat(losses).mean()

    def documents(self, row: list[int]) -> list[list[int]]:
        return documents_of(row)


class PackedMixture(MixtureTextbook):
    """`MixtureTextbook` for `data.documents: packed`: routing, loads and both auxiliary losses are those of a document alone."""

    def __init__(self, spec: Spec, values: dict[str, Tensor]) -> None:
        super().__init__(spec, values)
        data = spec["data"]
        self.corpus = RecordsCorpus(data["files"], data["seq_len"], data["validation"])

    def loss(self, rows: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
        """The mean over all tokens that have a next token in their document; `model.losses` are means over the same tokens."""
        cross_entropy, auxiliary = torch.zeros(2, dtype=torch.float64)
        tokens = 0
        for row in rows.tolist():
            for document in documents_of(row):
                if len(document) == 1:
                    continue
                logits = self.model(torch.tensor([document[:-1]]))[0]
                count = len(document) - 1
                following = torch.tensor(document[1:])
                cross_entropy = cross_entropy + functional.cross_entropy(logits, following, reduction="sum")
                auxiliary = auxiliary + count * sum(self.model.losses)
                tokens += count
        self.model.losses[:] = [auxiliary / tokens]
        return cross_entropy / tokens


class PackedDelayed(Delayed, PackedTextbook):
    """2BW's loop for packed documents: the gradient of a step, late, is a mean over that step's own targets."""


class PackedNotDelayed(NotDelayed, PackedTextbook):
    """Without the delay."""


class PackedStashed(Stashed, PackedTextbook):
    """PipeDream's loop for packed documents."""


class CrossesEnds(PackedTextbook):
    """An oracle with one wrong line: a row is one document."""

    def documents(self, row: list[int]) -> list[list[int]]:
        return [row]


class AttendsAcross(PackedTextbook):
    """An oracle with one wrong line: two documents of a row are one, so that attention and positions cross one end, and one target more."""

    def documents(self, row: list[int]) -> list[list[int]]:
        first, *rest = super().documents(row)
        return [first + rest[0], *rest[1:]] if rest else [first]


class MeansOfRows(PackedTextbook):
    """An oracle with one wrong line: the mean of the means of rows, which have different numbers of targets."""

    def loss(self, rows: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
        return torch.stack([super(MeansOfRows, self).loss(row[None], label_smoothing, z_loss) for row in rows]).mean()
