"""Sizes of the model families, as numbers only: no torch, so that the API can check a layout before it uses a machine.

Published sizes: GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020, table 2.1) for `gpt2`; Llama 2 (2307.09288) 7B and 70B,
Llama 3 (2407.21783, table 3) 8B and Qwen3 (2505.09388, table 1; widths from its published configurations) for `llama`. `124M` … `1.3B` of
`llama` are GPT-3's widths with Llama's blocks. Mixtral 8x7B (2401.04088, table 1) and OLMoE-1B-7B (2409.02060, table 10; without its norm
of queries and keys) for `moe`.
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Family = Literal["llama", "gpt2", "moe"]

#: Coefficients beside `balance: bias` (2412.19437, section 4.2): a small loss against extreme imbalance within a sequence.
BIAS_COEFFICIENTS: Final = {"balance_loss": 0.0001, "z_loss": 0.0}


class Architecture(BaseModel):
    """The numbers of one decoder. `hidden` is the feed-forward width; without `head_dim`, `dim` must divide by `heads`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Family
    layers: int = Field(ge=1, le=1024)
    dim: int = Field(ge=2, le=65536)
    heads: int = Field(ge=1, le=1024)
    kv_heads: int = Field(ge=1, le=1024)
    hidden: int = Field(ge=1, le=262144)
    vocab: int = Field(256, ge=2, le=4_000_000)
    max_seq_len: int = Field(2048, ge=1, le=10_000_000)
    rope_theta: float = Field(10_000.0, gt=0, allow_inf_nan=False)
    norm_eps: float = Field(1e-5, gt=0, allow_inf_nan=False)
    tied: bool = False
    head_dim: int | None = Field(None, ge=1, le=65536)  # None: dim / heads
    qkv_bias: bool = False  # llama: as Qwen2 has it
    qk_norm: bool = False  # llama: RMSNorm over each head of queries and keys, as Qwen3 has it
    window: int | None = Field(None, ge=1)  # llama: a sliding window of attention; sequences must fit into it
    experts: int | None = Field(None, ge=1, le=4096)  # of family moe; `hidden` is the width of each
    shared_experts: int = Field(0, ge=0, le=1024)  # of the same width, for every token, beside the `experts`
    top_k: int = Field(2, ge=1, le=4096)
    router_softmax: Literal["chosen", "all"] = "chosen"
    capacity_factor: float | None = Field(None, gt=0, le=4096)  # with experts / top_k or more no expert drops a token
    balance: Literal["loss", "bias"] = "loss"
    bias_update_speed: float = Field(0.001, ge=0, allow_inf_nan=False)  # of balance bias
    balance_loss: float = Field(0.01, ge=0, allow_inf_nan=False)
    z_loss: float = Field(0.001, ge=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _coefficients_of_bias(cls, numbers: Any) -> Any:
        """Where biases keep the balance, the losses have DeepSeek-V3's coefficients if none are given."""
        biased = isinstance(numbers, dict) and numbers.get("balance") == "bias"
        return {**BIAS_COEFFICIENTS, **numbers} if biased else numbers

    @model_validator(mode="after")
    def _consistent(self) -> "Architecture":
        if self.head_dim is None and self.dim % self.heads:
            raise ValueError(f"dim {self.dim} is not divisible by heads {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not divisible by kv_heads {self.kv_heads}")
        if self.family == "gpt2" and (self.head_dim is not None or self.qkv_bias or self.qk_norm or self.window):
            raise ValueError("head_dim, qkv_bias, qk_norm and window belong to the family llama")
        if (self.family == "moe") != (self.experts is not None):
            raise ValueError("family moe needs experts" if self.family == "moe" else "experts belong to family moe")
        if self.experts is None and self.shared_experts:
            raise ValueError("shared_experts belong to family moe")
        if self.experts is not None and self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} is more than the {self.experts} experts")
        if self.family != "gpt2" and self.head_size % 2:
            raise ValueError(f"rotary embedding needs an even head size; {self.head_size} is odd (dim / heads)")
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.dim // self.heads

    @property
    def active_experts(self) -> int:
        """Feed-forwards that process a token in each block, without the shared experts."""
        return 1 if self.experts is None else self.top_k

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        d, h = self.dim, self.hidden
        q, kv = self.head_size * self.heads, self.head_size * self.kv_heads
        if self.family != "gpt2":
            block = 2 * d * q + 2 * d * kv + (self.experts or 1) * 3 * d * h + d * (self.experts or 0) + 2 * d
            block += self.shared_experts * 3 * d * h
            block += (q + 2 * kv) * self.qkv_bias + 2 * self.head_size * self.qk_norm
            ends = self.vocab * d + d
        else:
            block = (d * d + d) * 2 + (d * kv + kv) * 2 + (d * h + h) + (h * d + d) + 4 * d
            ends = self.vocab * d + self.max_seq_len * d + 2 * d
        head = 0 if self.tied else self.vocab * d
        return self.layers * block + ends + head


def _llama(layers: int, dim: int, heads: int, kv_heads: int, hidden: int, **more: float) -> dict[str, object]:
    return {
        "family": "llama",
        "layers": layers,
        "dim": dim,
        "heads": heads,
        "kv_heads": kv_heads,
        "hidden": hidden,
        **more,
    }


def _qwen3(layers: int, dim: int, heads: int, kv_heads: int, hidden: int, **more: float) -> dict[str, object]:
    """Heads of 128 whatever the width, and a norm of each head's queries and keys."""
    numbers = {"head_dim": 128, "qk_norm": True, "max_seq_len": 32768, "rope_theta": 1_000_000.0, "norm_eps": 1e-6}
    return _llama(layers, dim, heads, kv_heads, hidden, **{**numbers, **more})


def _moe(experts: int, top_k: int, numbers: dict[str, object], **more: object) -> dict[str, object]:
    return {**numbers, "family": "moe", "experts": experts, "top_k": top_k, **more}


def _gpt2(layers: int, dim: int, heads: int, max_seq_len: int = 1024) -> dict[str, object]:
    return {
        "family": "gpt2",
        "layers": layers,
        "dim": dim,
        "heads": heads,
        "kv_heads": heads,
        "hidden": 4 * dim,
        "max_seq_len": max_seq_len,
    }


#: family → preset → fields of `Architecture` (the vocabulary comes from the tokenizer unless the spec names one).
PRESETS: dict[str, dict[str, dict[str, object]]] = {
    "llama": {
        "nano": _llama(4, 128, 4, 2, 352),
        "micro": _llama(8, 256, 8, 4, 704),
        "124M": _llama(12, 768, 12, 12, 2048),
        "350M": _llama(24, 1024, 16, 16, 2816),
        "1.3B": _llama(24, 2048, 16, 16, 5632),
        "7B": _llama(32, 4096, 32, 32, 11008, max_seq_len=4096),
        "8B": _llama(32, 4096, 32, 8, 14336, max_seq_len=8192, rope_theta=500_000.0),
        "70B": _llama(80, 8192, 64, 8, 28672, max_seq_len=4096),
        "qwen3-nano": _qwen3(4, 128, 4, 2, 352, head_dim=64, tied=True),
        "qwen3-0.6B": _qwen3(28, 1024, 16, 8, 3072, tied=True),
        "qwen3-8B": _qwen3(36, 4096, 32, 8, 12288),
    },
    "gpt2": {
        "nano": _gpt2(4, 128, 4),
        "micro": _gpt2(8, 256, 8),
        "124M": _gpt2(12, 768, 12),
        "350M": _gpt2(24, 1024, 16),
        "1.3B": _gpt2(24, 2048, 16, 2048),
        "7B": _gpt2(32, 4096, 32, 2048),
        "8B": _gpt2(36, 4096, 32, 2048),
        "70B": _gpt2(80, 8192, 64, 2048),
    },
    "moe": {
        "nano": _moe(4, 2, _llama(4, 128, 4, 2, 176)),
        "micro": _moe(8, 2, _llama(8, 256, 8, 4, 352)),
        "mixtral-8x7B": _moe(8, 2, _llama(32, 4096, 32, 8, 14336, max_seq_len=32768, rope_theta=1_000_000.0)),
        "olmoe-1B-7B": _moe(64, 8, _llama(16, 2048, 16, 16, 1024, max_seq_len=4096), router_softmax="all"),
    },
}
