import torch
import torch.nn.functional as F

from shardyard.workers.dry_run.fake_norms import rms_norm


def test_on_a_cpu_it_is_torchs_own() -> None:
    x, weight = torch.randn(2, 3, 8), torch.randn(8)
    assert torch.equal(rms_norm(x, (8,), weight, 1e-5), F.rms_norm(x, (8,), weight, 1e-5))
