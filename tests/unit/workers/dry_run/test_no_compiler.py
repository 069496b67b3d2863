import pytest
import torch
import torch._dynamo

from shardyard.workers.dry_run import no_compiler


def one() -> int:
    return 1


def test_functions_are_called_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo, "disable", torch._dynamo.disable)
    assert torch.compiler.disable(one) is not one
    no_compiler.install()
    assert torch.compiler.disable(one) is one
    assert torch.compiler.disable(recursive=False)(one) is one
