"""`ModelSpec`, the `train.model` part of a job spec. Imports no torch."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from ..strategies.layout import Refusal
from .models.hf_config import fitted
from .models.presets import PRESETS, Architecture, Family
from .spec_part import Finite, SpecPart

#: The numbers of a decoder of any family.
DECODER = ("layers", "dim", "heads", "kv_heads", "hidden", "tied", "rope_theta")

#: The numbers of a mixture of experts.
MIXTURE = (
    "experts",
    "shared_experts",
    "top_k",
    "router_softmax",
    "capacity_factor",
    "balance",
    "bias_update_speed",
    "balance_loss",
    "z_loss",
)


class ModelSpec(SpecPart):
    """The model: a preset with any of its numbers replaced, a Hugging Face folder, or your own `import: "module:factory"`.

    A factory is called with `args` and returns an `nn.Module` that maps token ids [batch, seq] (int64) to logits
    [batch, seq, vocab]. Its `code` folder is put on the trainer's path.
    """

    family: Family = Field("llama", description="Model family.")
    preset: str = Field(
        "nano",
        description="Size: nano, micro, 124M, 350M, 1.3B, 7B, 8B, 70B; of llama also qwen3-nano, qwen3-0.6B, qwen3-8B; "
        "of moe: nano, micro, mixtral-8x7B, olmoe-1B-7B.",
    )
    layers: int | None = Field(None, description="Number of blocks; default: the preset's.")
    dim: int | None = Field(None, description="Model width; default: the preset's.")
    heads: int | None = Field(None, description="Number of attention heads; default: the preset's.")
    kv_heads: int | None = Field(
        None, description="Number of key/value heads (grouped-query attention); default: the preset's."
    )
    hidden: int | None = Field(None, description="Feed-forward width; default: the preset's.")
    vocab: int | None = Field(None, description="Vocabulary size; default: the tokenizer's.")
    tied: bool | None = Field(None, description="Share the embedding with the head.")
    rope_theta: Finite | None = Field(None, description="Base of the rotary embedding (llama).")
    experts: int | None = Field(None, description="Number of experts per block (moe); default: the preset's.")
    shared_experts: int | None = Field(
        None,
        description="Number of experts of the same width that process every token (moe), as in DeepSeek-V3; default 0.",
    )
    top_k: int | None = Field(None, description="Number of experts per token (moe); default: the preset's.")
    router_softmax: Literal["chosen", "all"] | None = Field(
        None,
        description="A chosen expert's weight (moe): the softmax over the chosen ones (Mixtral) or over all (Switch, OLMoE).",
    )
    capacity_factor: Finite | None = Field(
        None,
        description="An expert takes ⌈factor · seq_len · top_k / experts⌉ tokens per sequence and drops the rest (moe); null: all.",
    )
    balance: Literal["loss", "bias"] | None = Field(
        None,
        description="What keeps the experts' loads even (moe): `loss`, the load-balancing loss (default); or `bias`, a bias per expert "
        "for the choice alone, with sigmoid affinities instead of router_softmax (DeepSeek-V3).",
    )
    bias_update_speed: Finite | None = Field(
        None,
        description="What a step adds to or takes from an expert's bias, with balance `bias` (moe); default 0.001.",
    )
    balance_loss: Finite | None = Field(
        None,
        description="Coefficient of the load-balancing loss, per sequence (moe); default 0.01, with balance `bias` 0.0001.",
    )
    z_loss: Finite | None = Field(
        None, description="Coefficient of the router's z-loss (moe); default 0.001, with balance `bias` 0."
    )
    import_: str | None = Field(
        None,
        alias="import",
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="`module:factory` of your own nn.Module; replaces family and preset.",
    )
    from_: str | None = Field(
        None,
        alias="from",
        min_length=1,
        max_length=4096,
        description="Folder of a Hugging Face model (config.json, *.safetensors): numbers and weights; replaces family and preset.",
    )
    code: str | None = Field(None, description="Folder put on the Python path for `import`.")
    args: dict[str, Any] = Field(default_factory=dict, description="Keyword arguments for the factory of `import`.")

    @model_validator(mode="after")
    def _known_preset(self) -> "ModelSpec":
        if self.import_ is None and self.preset not in PRESETS[self.family]:
            raise ValueError(f"preset {self.preset!r} is not one of {', '.join(PRESETS[self.family])}")
        given = [name for name in MIXTURE if getattr(self, name) is not None]
        if given and (self.import_ is not None or self.family != "moe"):
            raise ValueError(f"{', '.join(given)}: only of family moe")
        self._fits_balance()
        self._nothing_unread()
        if self.import_ is None and (self.code or self.args):
            raise ValueError("code and args belong to a model given by import")
        if self.from_ is not None:
            self._nothing_beside_from()
            return self
        self.architecture(256, 1)
        return self

    def _fits_balance(self) -> None:
        if self.balance == "bias" and self.router_softmax is not None:
            raise ValueError(
                "router_softmax belongs to balance loss; with balance bias affinities are sigmoids: leave it out"
            )
        if self.balance != "bias" and self.bias_update_speed is not None:
            raise ValueError("bias_update_speed belongs to balance bias: set balance to bias, or leave it out")

    def _nothing_unread(self) -> None:
        """Refuse numbers that the model does not read. A stored spec, which names all of them, may have some: they were accepted once."""
        if self.model_fields_set.issuperset(DECODER):
            return
        if self.import_ is not None:
            given = [name for name in DECODER if getattr(self, name) is not None]
            if given:
                remedy = "Give them to the factory in model.args, or leave them out."
                raise Refusal(given[0], f"a module of your own does not read {', '.join(given)}.", remedy)
        elif self.family == "gpt2" and self.rope_theta is not None:
            raise Refusal(
                "rope_theta", "gpt2 learns its positions and does not read it.", "Leave it out, or set family to llama."
            )

    def _nothing_beside_from(self) -> None:
        """Beside `from` only `tied` may be set: the folder holds all other values."""
        fields = type(self).model_fields
        given = {name for name in fields if getattr(self, name) != fields[name].get_default(call_default_factory=True)}
        if more := sorted(given - {"from_", "tied"}):
            raise ValueError(f"from brings its own numbers: leave out {', '.join(more).replace('import_', 'import')}")

    def check_vocab(self, tokens: int) -> None:
        """Raises `Refusal` if the model's vocabulary is smaller than a tokenizer of `tokens` tokens."""
        if self.vocab is not None and self.vocab < tokens:
            raise Refusal(
                "model.vocab",
                f"{self.vocab} is less than the tokenizer's {tokens} tokens.",
                f"Use {tokens} or more, or leave it out.",
            )

    def architecture(self, vocab: int, seq_len: int) -> Architecture | None:
        """The decoder's sizes, or None for a user's own module.

        Raises `ValueError` (pydantic) if the sizes contradict each other, and `Refusal` if the folder cannot be used.
        """
        if self.import_ is not None:
            return None
        if self.from_ is not None:
            return fitted(Path(self.from_).expanduser(), self.tied, vocab, seq_len)
        numbers = dict(PRESETS[self.family][self.preset])
        numbers |= {name: value for name in (*DECODER, *MIXTURE) if (value := getattr(self, name)) is not None}
        if self.heads is not None and self.kv_heads is None and self.family == "gpt2":
            numbers["kv_heads"] = self.heads
        numbers["vocab"] = self.vocab or vocab
        longest = numbers.get("max_seq_len", 2048)
        assert isinstance(longest, int)
        numbers["max_seq_len"] = max(longest, seq_len)
        return Architecture.model_validate(numbers)
