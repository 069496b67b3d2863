"""Small models, as specs name them: enough layers, heads and experts for every axis to cut."""

from typing import Any

LLAMA: dict[str, Any] = {
    "family": "llama",
    "preset": "nano",
    "layers": 4,
    "dim": 32,
    "heads": 4,
    "kv_heads": 2,
    "hidden": 64,
}
GPT2: dict[str, Any] = {"family": "gpt2", "layers": 4, "dim": 32, "heads": 4, "hidden": 64}
MIXTURE: dict[str, Any] = {
    "family": "moe",
    "layers": 4,
    "dim": 32,
    "heads": 4,
    "kv_heads": 2,
    "hidden": 24,
    "experts": 4,
    "top_k": 2,
    "balance_loss": 0.1,
    "z_loss": 0.01,
}
#: As DeepSeek-V3 has it. Its biases move by about as much as affinities differ, so that they decide.
BIASED: dict[str, Any] = {**MIXTURE, "shared_experts": 2, "balance": "bias", "bias_update_speed": 0.01}
