"""What a config.json says of a model, and what these blocks do not compute."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.layout import Refusal
from shardyard.workers.model_spec import ModelSpec
from shardyard.workers.models.hf_config import architecture_of, config_of, fitted, place
from shardyard.workers.models.presets import Architecture
from shardyard.workers.spec import TrainSpec

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 300,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 5e5,
}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 8, "n_positions": 128, "vocab_size": 300}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 32}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": 64}
QWEN2 = {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True}


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    def write(config: Any) -> Path:
        (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        return tmp_path

    return write


def test_the_numbers_of_a_llama(folder: Any) -> None:
    found = architecture_of(folder(LLAMA))
    assert (found.layers, found.dim, found.heads, found.kv_heads, found.hidden) == (3, 64, 8, 2, 96)
    assert (found.vocab, found.max_seq_len, found.rope_theta, found.norm_eps) == (300, 128, 5e5, 1e-6)
    assert not found.tied and found.head_dim is None


@pytest.mark.parametrize("config", [LLAMA, GPT2, QWEN2, QWEN3, MISTRAL], ids=lambda config: str(config["model_type"]))
def test_there_and_back_is_the_same_model(config: dict[str, Any], folder: Any) -> None:
    found = architecture_of(folder(config))
    written = config_of(found, "float32", None)
    assert written["model_type"] == config["model_type"]
    assert architecture_of(folder(written)) == found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling has rope_type 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_scaling has rope_type 'linear'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_key_value_heads": 3}, "heads 8 is not divisible by kv_heads 3"),
        ({"num_hidden_layers": "many"}, "layers: Input should be a valid integer"),
        ({"model_type": ["llama"]}, r"model_type is \['llama'\]"),
        ({"model_type": "qwen2", "layer_types": 5}, "its numbers: "),
        ({"head_dim": {}}, "its numbers: |head_dim"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_field(change: dict[str, Any], said: str, folder: Any) -> None:
    with pytest.raises(Refusal, match=said) as refusal:
        architecture_of(folder({**LLAMA, **change}))
    assert refusal.value.field == "model.from"
    assert refusal.value.remedy


@pytest.mark.parametrize("config", ["{", "[]"])
def test_another_file_is_refused(config: str, folder: Any) -> None:
    with pytest.raises(Refusal, match="is not"):
        architecture_of(folder(config))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="No such file"):
        architecture_of(tmp_path / "gone")


@pytest.mark.parametrize(
    ("config", "tied", "vocab", "seq_len", "field"),
    [
        (LLAMA, None, 301, 16, "data.tokenizer"),
        (GPT2, None, 256, 129, "data.seq_len"),
        (MISTRAL, None, 256, 65, "data.seq_len"),
        (LLAMA, True, 256, 16, "model.tied"),
    ],
)
def test_what_does_not_fit_the_data(
    config: Any, tied: bool | None, vocab: int, seq_len: int, field: str, folder: Any
) -> None:
    with pytest.raises(Refusal) as refusal:
        fitted(folder(config), tied, vocab, seq_len)
    assert refusal.value.field == field


def test_bytes_are_refused_for_a_model_with_a_tokenizer_of_its_own(folder: Any) -> None:
    spec = TrainSpec.model_validate({"model": {"from": str(folder(LLAMA))}, "steps": 1, "global_batch": 1})
    assert spec.architecture(256) is not None, "such as a model of bytes"
    own = Path(str(spec.model.from_)) / "tokenizer.json"
    own.write_text("{}")
    with pytest.raises(Refusal, match="bytes are not the tokens") as refusal:
        spec.architecture(256)
    assert refusal.value.field == "data.tokenizer" and str(own) in refusal.value.remedy
    data = spec.data.model_copy(update={"tokenizer": str(own)})
    assert spec.model_copy(update={"data": data}).architecture(300) is not None


def test_a_head_can_be_untied(folder: Any) -> None:
    assert fitted(folder(QWEN2), None, 256, 16).tied
    assert not fitted(folder(QWEN2), False, 256, 16).tied


def test_rotary_positions_go_on_beyond_the_published_length(folder: Any) -> None:
    assert fitted(folder(LLAMA), None, 256, 4096).max_seq_len == 4096


def test_places() -> None:
    assert place("blocks.3.attention.k.weight", "llama").name == "model.layers.3.self_attn.k_proj.weight"
    fused = place("blocks.3.attention.k.weight", "gpt2")
    assert (fused.name, fused.transposed) == ("transformer.h.3.attn.c_attn.weight", True)
    assert (fused.part, fused.parts) == (1, 3)
    assert not place("blocks.3.attention.k.bias", "gpt2").transposed
    assert place("positions.weight", "gpt2").name == "transformer.wpe.weight"


def test_the_layout_is_checked_against_the_file(folder: Any) -> None:
    train = {"model": {"from": str(folder(LLAMA))}, "steps": 1, "global_batch": 8, "layout": {"tensor": 4}}
    with pytest.raises(Refusal, match="2 \\(key/value heads\\) is not divisible by 4"):
        TrainSpec.model_validate(train).check(256)


def test_numbers_beside_the_file_are_refused() -> None:
    with pytest.raises(ValidationError, match="leave out heads, layers"):
        ModelSpec.model_validate({"from": "/m", "layers": 2, "heads": 4})
    sent = ModelSpec.model_validate({"from": "/m", "tied": False})
    assert ModelSpec.model_validate_json(sent.model_dump_json()) == sent


def test_no_file_holds_what_transformers_has_not() -> None:
    numbers = {"layers": 1, "dim": 8, "heads": 2, "kv_heads": 2, "hidden": 8, "qkv_bias": True, "qk_norm": True}
    with pytest.raises(ValueError, match="transformers has no model"):
        config_of(Architecture.model_validate({"family": "llama", **numbers}), "float32", None)


def test_no_file_holds_a_gpt2_with_fewer_key_and_value_heads() -> None:
    arch = ModelSpec(family="gpt2", kv_heads=2).architecture(256, 16)
    assert arch is not None
    with pytest.raises(ValueError, match="as many kv_heads as heads, not 2 of 4"):
        config_of(arch, "float32", None)
    spec = {"model": {"family": "gpt2", "kv_heads": 2}, "steps": 1, "global_batch": 2, "checkpoint": {"export": True}}
    with pytest.raises(Refusal, match="as many kv_heads as heads") as refused:
        TrainSpec.model_validate(spec).check()
    assert refused.value.field == "checkpoint.export"
