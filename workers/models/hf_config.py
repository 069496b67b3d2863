"""Converts between a Hugging Face `config.json` with its parameter names and our architectures. Imports no torch.

A feature that these blocks do not compute is refused by its field's name, never ignored. Supported are Llama, Mistral, Qwen2, Qwen3
(family `llama`) and GPT-2. Dropout is ignored: training here has none.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...strategies.layout import Refusal
from ..regular_files import UnfitFile, read
from .presets import Architecture

#: model_type → (transformers' class, our family)
CLASSES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "mistral": ("MistralForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "llama"),
    "qwen3": ("Qwen3ForCausalLM", "llama"),
    "gpt2": ("GPT2LMHeadModel", "gpt2"),
}

#: Published configs have a few thousand bytes.
MOST_BYTES = 1 << 20

#: Field → the only values that these blocks compute. A missing field has the first value.
_LLAMA_ONLY: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_sliding_window": (False, None),
    "partial_rotary_factor": (None, 1, 1.0),
    "quantization_config": (None,),
}
_GPT2_ONLY: dict[str, tuple[object, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "add_cross_attention": (False, None),
    "quantization_config": (None,),
}


def architecture_of(folder: Path) -> Architecture:
    """The numbers of the model in `folder`, from its `config.json`. Raises `Refusal` of `model.from`."""
    config = _read(folder / "config.json")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in CLASSES:
        raise _refusal(f"model_type is {kind!r}.", f"Models that can be read: {', '.join(CLASSES)}.")
    try:
        numbers = _gpt2(config) if kind == "gpt2" else _llama(config, kind)
        return Architecture.model_validate(numbers)
    except TypeError as error:  # such as a list where a number belongs
        raise _refusal(f"its numbers: {error}.", "Use a model whose config.json is whole.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _refusal(
            f"{where or 'its numbers'}: {first['msg']}.", "Use a model whose config.json is whole."
        ) from None


def fitted(folder: Path, tied: bool | None, vocab: int, seq_len: int) -> Architecture:
    """The model of `folder` for texts of `vocab` tokens in sequences of `seq_len`. Raises `Refusal`.

    `tied` False unties the head: it starts as a copy of the embedding.
    """
    arch = architecture_of(folder)
    if vocab > arch.vocab:
        remedy = f"Use the tokenizer.json in {folder}, if there is one."
        raise Refusal("data.tokenizer", f"its {vocab} tokens are more than the {arch.vocab} of model.from.", remedy)
    longest = arch.max_seq_len if arch.family == "gpt2" else arch.window
    if longest is not None and seq_len > longest:
        why = (
            "learned positions"
            if arch.window is None
            else "tokens in its sliding window, beyond which nothing is computed"
        )
        raise Refusal("data.seq_len", f"{seq_len}: model.from has {longest} {why}.", f"Use {longest} or less.")
    if tied and not arch.tied:
        raise Refusal("model.tied", "the model of model.from has a head of its own.", "Leave it out.")
    changes: dict[str, object] = {"max_seq_len": max(arch.max_seq_len, seq_len)}
    return arch.model_copy(update=changes if tied is None else changes | {"tied": tied})


def refuse_bytes(folder: Path) -> None:
    """Raise `Refusal` if the model of `folder` has a tokenizer of its own: bytes as its tokens would mean nothing to it."""
    if (folder / "tokenizer.json").is_file():
        raise Refusal(
            "data.tokenizer",
            "bytes are not the tokens of model.from, which has a tokenizer of its own.",
            f"Set data.tokenizer to {folder}/tokenizer.json.",
        )


def config_of(arch: Architecture, dtype: str, end_of_text: int | None) -> dict[str, Any]:
    """The `config.json` of an architecture, for weights of `dtype` (`float32`, `bfloat16`, …). Raises `ValueError` if no class fits."""
    kind = _kind(arch)
    tokens = {"bos_token_id": None, "eos_token_id": end_of_text, "pad_token_id": None}
    shared = {
        "architectures": [CLASSES[kind][0]],
        "model_type": kind,
        "torch_dtype": dtype,
        "vocab_size": arch.vocab,
        "tie_word_embeddings": arch.tied,
        "initializer_range": 0.02,
        "use_cache": True,
    }
    return shared | tokens | (_gpt2_config(arch) if kind == "gpt2" else _llama_config(arch, kind))


@dataclass(frozen=True)
class Place:
    """Location of a parameter in a file: in tensor `name`, `transposed` ([in, out]), one of `parts` equal parts of the output dim."""

    name: str
    transposed: bool = False
    part: int = 0
    parts: int = 1


def place(name: str, family: str) -> Place:
    """The location of our parameter `name` (as in `blocks.3.attention.q.weight`)."""
    *path, kind = name.split(".")
    layer = ""
    if path[0] == "blocks":
        layer = ("transformer.h." if family == "gpt2" else "model.layers.") + path[1] + "."
        path = path[2:]
    module = ".".join(path)
    if family == "llama":
        return Place(f"{layer}{_LLAMA_MODULES[module]}.{kind}")
    transposed = kind == "weight" and module.startswith(("attention.", "mlp."))
    if module in _FUSED:
        return Place(f"{layer}attn.c_attn.{kind}", transposed, _FUSED.index(module), len(_FUSED))
    return Place(f"{layer}{_GPT2_MODULES[module]}.{kind}", transposed)


#: Our module → its name in a file, inside its block or at the top level.
_LLAMA_MODULES = {
    "embed": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    **{f"attention.{letter}": f"self_attn.{letter}_proj" for letter in "qkvo"},
    **{f"attention.{letter}_norm": f"self_attn.{letter}_norm" for letter in "qk"},
    **{f"mlp.{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
}
_GPT2_MODULES = {
    "embed": "transformer.wte",
    "positions": "transformer.wpe",
    "norm": "transformer.ln_f",
    "head": "lm_head",
    "attention_norm": "ln_1",
    "mlp_norm": "ln_2",
    "attention.o": "attn.c_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
_FUSED = ("attention.q", "attention.k", "attention.v")


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(read(path, MOST_BYTES))
    except UnfitFile as error:
        raise Refusal("model.from", error.message, error.remedy) from None
    except OSError as error:
        remedy = "Name the folder of a Hugging Face model: config.json and *.safetensors."
        raise Refusal("model.from", f"{path} cannot be read: {error.strerror}.", remedy) from None
    except (ValueError, RecursionError) as error:
        raise Refusal(
            "model.from", f"{path} is not JSON: {error}.", "Use a model whose config.json is whole."
        ) from None
    if not isinstance(config, dict):
        raise Refusal("model.from", f"{path} is not a JSON object.", "Use a model whose config.json is whole.")
    return config


def _refusal(message: str, remedy: str) -> Refusal:
    return Refusal("model.from", f"config.json: {message}", remedy)


def _only(config: Mapping[str, Any], fields: Mapping[str, tuple[object, ...]]) -> None:
    for field, known in fields.items():
        value = config.get(field, known[0])
        if value not in known:
            raise _refusal(f"{field} is {value!r}; only {known[0]!r} is computed here.", "Use a model without it.")


def _need(config: Mapping[str, Any], field: str) -> Any:
    if config.get(field) is None:
        raise _refusal(f"{field} is missing.", "Use a model whose config.json is whole.")
    return config[field]


def _llama(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    _only(config, _LLAMA_ONLY)
    layers = config.get("layer_types") or []
    if kind != "mistral" and any(layer != "full_attention" for layer in layers):
        raise _refusal("layer_types has other layers than full_attention.", "Use a model without them.")
    dim, heads = _need(config, "hidden_size"), _need(config, "num_attention_heads")
    size = config.get("head_dim")
    return {
        "family": "llama",
        "layers": _need(config, "num_hidden_layers"),
        "dim": dim,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "hidden": _need(config, "intermediate_size"),
        "vocab": _need(config, "vocab_size"),
        "max_seq_len": config.get("max_position_embeddings") or 2048,
        "rope_theta": _rope_theta(config),
        "norm_eps": config.get("rms_norm_eps", 1e-6),
        "tied": bool(config.get("tie_word_embeddings", False)),
        "head_dim": None if size is None or size * heads == dim else size,
        "qkv_bias": kind == "qwen2",
        "qk_norm": kind == "qwen3",
        "window": config.get("sliding_window") if kind == "mistral" else None,
    }


def _rope_theta(config: Mapping[str, Any]) -> Any:
    """The rotary base. Transformers 5 has `rope_parameters`; before, it was `rope_theta` and `rope_scaling`."""
    field = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    rope = config.get(field) or {}
    if not isinstance(rope, dict):
        raise _refusal(f"{field} is {rope!r}.", "Use a model whose config.json is whole.")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default" or any(isinstance(value, dict) for value in rope.values()):
        remedy = "Use a model with plain rotary positions."
        raise _refusal(f"{field} has rope_type {kind!r}; only 'default' is computed here.", remedy)
    if rope.get("partial_rotary_factor", 1) != 1:
        raise _refusal(f"{field}.partial_rotary_factor is not 1.", "Use a model that rotates whole heads.")
    return rope.get("rope_theta", config.get("rope_theta", 10_000.0))


def _gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    _only(config, _GPT2_ONLY)
    dim, heads = _need(config, "n_embd"), _need(config, "n_head")
    return {
        "family": "gpt2",
        "layers": _need(config, "n_layer"),
        "dim": dim,
        "heads": heads,
        "kv_heads": heads,
        "hidden": config.get("n_inner") or 4 * dim,
        "vocab": _need(config, "vocab_size"),
        "max_seq_len": config.get("n_positions") or config.get("n_ctx") or 1024,
        "norm_eps": config.get("layer_norm_epsilon", 1e-5),
        "tied": bool(config.get("tie_word_embeddings", True)),
    }


def _kind(arch: Architecture) -> str:
    if arch.family == "gpt2":
        if arch.kv_heads != arch.heads:
            raise ValueError(
                f"GPT-2 in transformers has as many kv_heads as heads, not {arch.kv_heads} of {arch.heads}"
            )
        return "gpt2"
    if arch.family != "llama" or (arch.qkv_bias and arch.qk_norm):
        raise ValueError(f"transformers has no model of the family {arch.family} with these numbers: {arch}")
    if arch.qkv_bias or arch.qk_norm:
        return "qwen2" if arch.qkv_bias else "qwen3"
    return "llama" if arch.window is None else "mistral"


def _llama_config(arch: Architecture, kind: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "hidden_size": arch.dim,
        "intermediate_size": arch.hidden,
        "num_hidden_layers": arch.layers,
        "num_attention_heads": arch.heads,
        "num_key_value_heads": arch.kv_heads,
        "head_dim": arch.head_size,
        "hidden_act": "silu",
        "max_position_embeddings": arch.max_seq_len,
        "rms_norm_eps": arch.norm_eps,
        "rope_theta": arch.rope_theta,
        "attention_dropout": 0.0,
    }
    if kind in ("llama", "qwen3"):
        config["attention_bias"] = False
    if kind == "llama":
        config["mlp_bias"] = False
    if kind == "mistral":
        config["sliding_window"] = arch.window
    return config


def _gpt2_config(arch: Architecture) -> dict[str, Any]:
    return {
        "n_embd": arch.dim,
        "n_head": arch.heads,
        "n_inner": arch.hidden,
        "n_layer": arch.layers,
        "n_positions": arch.max_seq_len,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": arch.norm_eps,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }
