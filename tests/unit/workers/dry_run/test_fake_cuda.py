import pytest
import torch

from shardyard.workers.dry_run import fake_cuda


def test_the_device_is_refused_once_torch_has_looked_for_its_own() -> None:
    assert torch.device("cpu")
    with pytest.raises(RuntimeError, match="before torch is imported"):
        fake_cuda.load()


def test_without_a_compiler_the_remedy_is_to_install_one(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_cuda.cxx_compiler, "own_folder", lambda: tmp_path)
    monkeypatch.setattr(fake_cuda.cxx_compiler, "found", lambda: None)
    with pytest.raises(fake_cuda.NoFakeDevice, match=r"Install a C\+\+ compiler"):
        fake_cuda.library()
