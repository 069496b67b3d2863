"""A spec with compile is refused on a node without the compiler that it needs, before the first step."""

import importlib.util
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from shardyard.strategies.compile import apply_compile, missing_for_gpus
from shardyard.strategies.layout import Refusal


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of commands; empty at first. Triton is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: real("torch" if name == "triton" else name))
    return tmp_path


def command(folder: Path, name: str) -> None:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o700)


@pytest.mark.parametrize(("device", "needed", "other"), [("cpu", r"C\+\+", "gcc"), ("cuda", "a C compiler", "g++")])
def test_a_node_without_the_compiler_is_refused(device: str, needed: str, other: str, tools: Path) -> None:
    command(tools, other)
    with pytest.raises(Refusal, match=needed) as refused:
        apply_compile([nn.Linear(2, 2)], torch.device(device))
    assert refused.value.field == "compile"


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_triton_takes_either_c_compiler(name: str, tools: Path) -> None:
    command(tools, name)
    apply_compile([nn.Linear(2, 2)], torch.device("cuda"))


def test_a_wrong_cc_is_refused_even_if_there_is_a_gcc(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(tools, "gcc")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(Refusal, match="C compiler"):
        apply_compile([nn.Linear(2, 2)], torch.device("cuda"))


def test_a_torch_without_triton_is_refused(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(tools, "gcc")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Refusal, match="Triton"):
        apply_compile([nn.Linear(2, 2)], torch.device("cuda"))


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own
def test_folders_of_compiled_code_are_this_users(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(tools, "gcc")
    monkeypatch.setattr(tempfile, "tempdir", str(tools))
    apply_compile([nn.Linear(2, 2)], torch.device("cuda"))
    assert Path(default_cache_dir()).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("folder", ["torch's", "the script's"])
def test_a_folder_of_another_user_is_refused(
    device: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that another user has put there would be executed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = Path(default_cache_dir()) if folder == "torch's" else tmp_path / f"shardyard-cxx-{os.getuid()}"
    path.symlink_to(tmp_path)
    with pytest.raises(Refusal, match=f"{path} belongs to another user") as refused:
        apply_compile([nn.Linear(2, 2)], torch.device(device))
    assert refused.value.field == "compile"


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_compiler_without_python_headers_is_refused(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's own compilers, with the headers and without."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: real("torch" if name == "triton" else name))
    assert missing_for_gpus() is None
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    with pytest.raises(Refusal, match=r"cannot include Python\.h") as refused:
        apply_compile([nn.Linear(2, 2)], torch.device(device))
    assert f"python3.{sys.version_info.minor}-dev" in refused.value.remedy
    assert missing_for_gpus() is not None
