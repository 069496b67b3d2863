"""Small random models as transformers publishes them: folders that a spec's `model.from` names."""

from pathlib import Path
from typing import Any

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 256,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**GROUPED, "rope_theta": 5000.0}),
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 40, "vocab_size": 257}),
    "mistral": ("Mistral", {**GROUPED, "head_dim": 16, "sliding_window": 32}),
    "qwen2": ("Qwen2", {**GROUPED, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 12}),
}


def save_hf_model(root: Path, name: str, dtype: str = "float64") -> Path:
    """The folder of a model, made once below `root`; every parameter (biases and norms too) is away from its usual first value."""
    import torch
    import transformers

    path = root / f"{name}-{dtype}"
    if not path.exists():
        kind, numbers = MODELS[name]
        torch.manual_seed(3)
        config = getattr(transformers, f"{kind}Config")(**numbers)
        suffix = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
        model = getattr(transformers, kind + suffix)(config).to(getattr(torch, dtype))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(path, max_shard_size="20KB")
    return path
