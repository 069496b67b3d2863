"""A small step is timed, and the two sizes give FLOP/s and what a block takes beside them."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from shardyard.workers.advisor.timed_step import _alone, solved
from shardyard.workers.program.captured_run import lines_of_rank_0
from shardyard.workers.spec import TrainSpec

CONFIG: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


def test_two_sizes_give_both_numbers() -> None:
    """At 1 TFLOP/s and 5 ms per block, 1 sequence of 0.1 TFLOP takes 110 ms, 4 take 410 ms."""
    rate, block_s = solved(1e11, 0.11, 0.41)
    assert (rate, block_s) == (pytest.approx(1e12), pytest.approx(5e-3))


@pytest.mark.parametrize(("small_s", "large_s"), [(0.5, 0.4), (0.05, 0.4)])
def test_times_that_do_not_fit_are_all_of_flops(small_s: float, large_s: float) -> None:
    assert solved(1e11, small_s, large_s) == (pytest.approx(1e12), 0.0)


def test_a_published_model_keeps_its_tokenizer(tmp_path: Path) -> None:
    """Bytes are not its tokens, so that the spec would be refused. The file is not read."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text("{}")
    data = {"source": "text", "files": ["corpus.txt"], "tokenizer": str(tmp_path / "tokenizer.json"), "seq_len": 64}
    train = {"model": {"from": str(tmp_path)}, "data": data, "steps": 1, "global_batch": 4}
    alone = _alone(TrainSpec.model_validate(train), CONFIG["vocab_size"], torch.device("cpu"))
    found = alone.architecture(CONFIG["vocab_size"])
    assert found is not None and found.dim == CONFIG["hidden_size"]


@pytest.mark.full
@pytest.mark.parametrize("family", ["llama", "moe"])
def test_a_step_is_timed_in_a_process_of_its_own(family: str, tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    train = {"model": {"family": family, "preset": "nano"}, "data": {"seq_len": 64}, "steps": 1, "global_batch": 4}
    path.write_text(json.dumps(TrainSpec.model_validate(train).model_dump(mode="json", exclude_unset=True)))
    line = next(lines_of_rank_0("workers.advisor", [str(path), "--vocab", "256"], 1))
    found = json.loads(line)
    assert 1e8 < found["flops"] < 1e13 and found["block_s"] >= 0 and 1e7 < found["memory_bandwidth"] < 1e12
    assert found["intra"] is None
