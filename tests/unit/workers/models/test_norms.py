import torch

from shardyard.workers.models.norms import RMSNorm


def test_rms_norm_is_its_formula() -> None:
    x = torch.randn(3, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    norm = RMSNorm(16, 1e-5).double()
    norm.weight.data = torch.linspace(0.5, 2, 16, dtype=torch.float64)
    expected = x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
    assert torch.allclose(norm(x), expected, atol=1e-14)


def test_rms_norm_of_bf16_is_the_fp32_result_rounded() -> None:
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(0)).mul(30).bfloat16()
    low = RMSNorm(128, 1e-5).bfloat16()(x)
    assert torch.equal(low, RMSNorm(128, 1e-5)(x.float()).bfloat16())
