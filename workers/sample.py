"""Sampling: continues a text with a trained model. One process on a CPU, in float32, computes the whole context again for each token.

That is slow for large models and long texts, and meant to show what a training has learned; to serve a model, export it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..strategies.expert_balance import Biased
from ..strategies.layout import Refusal
from ..strategies.param_shard import ParamShard
from .checkpoint.errors import CheckpointError
from .checkpoint.manifest import read
from .checkpoint.reader import load_into
from .checkpoint.verify import verify
from .data.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer
from .huggingface.export import origin, trained_as
from .huggingface.import_weights import Pretrained
from .models.hf_config import architecture_of
from .models.presets import Architecture
from .models.registry import make
from .spec import DataSpec
from .storage.folder import Folder
from .storage.open_folder import folder_at


@dataclass(frozen=True)
class Draw:
    """The maximum number of tokens, and how each is drawn: temperature 0 takes the likeliest; the same seed draws the same text."""

    tokens: int = 200
    temperature: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class Writer:
    """A model with its tokenizer. `context`: the number of preceding tokens that it uses, as in training.

    `packed`: it was trained on packed documents. There nothing follows the token that ends one, so its embedding as an input is untrained.
    """

    model: nn.Module
    tokenizer: Tokenizer
    context: int
    packed: bool = False

    @torch.no_grad()
    def write(self, prompt: str, draw: Draw) -> str:
        """The text after `prompt`, up to the end of a document. Without a prompt it begins a document.

        Raises `Refusal` without a prompt if the model is `packed`, or if its tokenizer has no separator.
        """
        generator = torch.Generator().manual_seed(draw.seed)
        ids = [int(one) for one in self.tokenizer.encode([prompt])[0]]
        if not ids and self.packed:
            problem = "the model was trained on packed documents, so it cannot begin one by itself: nothing follows an end of text there."
            raise Refusal("prompt", problem, "Name the beginning of a text with --prompt.")
        before = self.tokenizer.decode(ids)
        ids = ids or [int(one) for one in self.tokenizer.separator]
        if not ids:
            problem = "the tokenizer has no end of text and no token for a newline, so nothing comes before the first token of a text."
            raise Refusal("prompt", problem, "Name the beginning of a text with --prompt.")
        first = len(ids)
        while len(ids) - first < draw.tokens:
            logits = self.model(torch.tensor([ids[-self.context :]]))[0, -1, : self.tokenizer.vocab]
            token = _drawn(logits, draw.temperature, generator)
            if token == self.tokenizer.end:
                break
            ids.append(token)
        # Some decoders drop the space before the first word, which belongs to the text if a prompt comes before it.
        text = self.tokenizer.decode(ids)
        return text.removeprefix(before) if before and text.startswith(before) else self.tokenizer.decode(ids[first:])


def of_checkpoint(checkpoint: Folder, tokenizer: str | None = None) -> Writer:
    """The model of a `step-…` folder with the tokenizer of its training, unless `tokenizer` names another.

    Raises `CheckpointError`, `StorageError`, and for the tokenizer `Refusal` and `DataError`.
    """
    manifest = read(checkpoint)
    training = manifest.training
    if training.get("model") is None:
        raise CheckpointError(
            f"{checkpoint} is of a module of your own, which cannot be built here; sample it with code of your own."
        )
    arch = Architecture.model_validate(training["model"])
    data, packed = training.get("data") or {}, trained_as(training)["documents"] == "packed"
    name = tokenizer or str(training.get("tokenizer") or "bytes")
    found = _tokenizer(name, arch, packed, data.get("tokenizer"))
    if not tokenizer and data.get("tokenizer", found.digest) != found.digest:
        raise Refusal("tokenizer", f"{name} has changed since the training.", "Name the old one with --tokenizer.")
    verify(checkpoint, manifest)
    model = _empty(arch)
    load_into(checkpoint, manifest, list(_saved(model)))
    return Writer(model, found, _context(arch, int(data.get("seq_len") or arch.max_seq_len)), packed)


def of_export(folder: Path, tokenizer: str | None = None) -> Writer:
    """The model of a Hugging Face folder with its `tokenizer.json`. Without one a byte is a token, for models of 256 tokens.

    Raises `Refusal`, and `DataError` for the tokenizer.
    """
    arch, trained = architecture_of(folder), origin(folder_at(str(folder))).get("trained", {})
    packed, digest = trained.get("documents") == "packed", None if tokenizer else trained.get("tokenizer")
    found = _tokenizer(tokenizer or _own_tokenizer(folder, arch), arch, packed, digest)
    model = _empty(arch)
    values = Pretrained(folder, arch, (name for name, _ in model.named_parameters()))
    for name, value in model.named_parameters():
        value.copy_(values(name, value.shape, (0,) * value.dim(), value.shape))
    return Writer(model, found, _context(arch, trained.get("seq_len") or arch.max_seq_len), packed)


def _own_tokenizer(folder: Path, arch: Architecture) -> str:
    if (folder / "tokenizer.json").is_file():
        return str(folder)
    if arch.vocab != ByteTokenizer.vocab:
        problem = f"{folder} has no tokenizer.json, and the model has {arch.vocab} tokens, not the {ByteTokenizer.vocab} of bytes."
        raise Refusal(
            "tokenizer", problem, "Name a tokenizer.json with --tokenizer, or `bytes` for a larger vocabulary of bytes."
        )
    return "bytes"


def _tokenizer(name: str, arch: Architecture, packed: bool = False, digest: str | None = None) -> Tokenizer:
    """`digest`: that of the training's tokenizer."""
    found = load_tokenizer(DataSpec(tokenizer=name, documents="packed" if packed else "joined"), lambda: digest)
    if found.vocab > arch.vocab:
        problem = f"{name} has {found.vocab} tokens, but the model has {arch.vocab}."
        raise Refusal("tokenizer", problem, "Name the tokenizer that the model was trained with.")
    return found


def _context(arch: Architecture, tokens: int) -> int:
    """At most `tokens`, the model's own length, and its sliding window, beyond which attention here would see more than it should."""
    return min(tokens, arch.max_seq_len, arch.window or arch.max_seq_len)


def _empty(arch: Architecture) -> nn.Module:
    """The model without values, in float32.

    Its experts take all tokens: a capacity is that of whole training sequences, and in shorter ones would leave out the last token first.
    """
    with torch.device("meta"):
        model = make(arch.model_copy(update={"capacity_factor": None}))
    model.to_empty(device="cpu")
    model.tie()
    return model.eval().requires_grad_(False)


def _saved(model: nn.Module) -> Iterator[ParamShard]:
    """The parameters, and the biases by which a mixture chooses its experts."""
    for name, value in model.named_parameters():
        yield _whole(name, value)
    for name, module in model.named_modules():
        if isinstance(module, Biased) and module.expert_bias is not None:
            yield _whole(f"{name}.expert_bias", module.expert_bias)


def _whole(name: str, value: torch.Tensor) -> ParamShard:
    return ParamShard(name, tuple(value.shape), (0,) * value.dim(), value, frozenset())


def _drawn(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    """A token of `logits` [vocab]."""
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
