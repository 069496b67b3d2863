import torch
import torch.nn.functional as F

from shardyard.workers.dry_run.fake_attention import attention


def test_on_a_cpu_it_is_torchs_own() -> None:
    q, k, v = torch.randn(3, 1, 4, 8, 16).unbind()
    assert torch.equal(attention(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, is_causal=True))
