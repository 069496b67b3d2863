"""What a trainer builds: it beats while it makes tokens, which may take hours, and refuses modules that it cannot train."""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.models import LLAMA
from tokenizers import Tokenizer, models, pre_tokenizers

from shardyard.strategies.activation_memory.host_optimizer import HostOptimizer
from shardyard.strategies.layout import Refusal
from shardyard.strategies.mesh import make_mesh
from shardyard.workers.checkpoint.manifest import Manifest, encoded
from shardyard.workers.data import token_cache
from shardyard.workers.data.dataset import Tokens, open_tokens
from shardyard.workers.dry_run.fake_tensors import FakeStore
from shardyard.workers.dry_run.one_step import _tokens
from shardyard.workers.model_spec import ModelSpec
from shardyard.workers.spec import DataSpec, Run, TrainSpec
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.trainer.build import _check_tokens, _imported, _opened, allocate, compose
from shardyard.workers.trainer.heartbeat import Heartbeat


@pytest.fixture
def alone() -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_start_beats_while_it_makes_tokens(tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus.txt").write_text("a line of the corpus\n" * 400)
    data = {"source": "text", "files": [str(tmp_path / "corpus.txt")], "seq_len": 16}
    spec = TrainSpec.model_validate({"model": LLAMA, "data": data, "steps": 1, "global_batch": 2})
    run = Run(job="a", train=spec, checkpoints=str(tmp_path / "a"), cache=tmp_path / "cache")
    heartbeat, at = Heartbeat(), []
    real = token_cache.documents

    def documents(source: token_cache.Source) -> Iterator[str | None]:
        at.append(heartbeat.at)
        yield from real(source)

    monkeypatch.setattr(token_cache, "documents", documents)
    began = heartbeat.at
    allocate(run, make_mesh(spec.layout, torch.device("cpu")), beat=heartbeat.starting)
    assert (heartbeat.phase, heartbeat.step) == ("start", 0)
    (before_writing,) = at
    assert began < before_writing < heartbeat.at, "it beats as it reads the files, and as it writes the tokens"


@pytest.mark.parametrize(
    ("saved", "resumed", "data", "end"),
    [
        (False, False, "continue", 1),
        (True, False, "continue", 0),
        (False, True, "continue", 0),
        (False, True, "restart", 1),
        (True, True, "restart", 0),
    ],
)
def test_texts_end_as_in_the_checkpoint_that_is_continued(
    saved: bool, resumed: bool, data: str, end: int, tmp_path: Path
) -> None:
    """An older version saved it, which took the usual name as the end of a text. Restarted data end as in a new job."""
    tokenizer = Tokenizer(models.WordLevel({"</s>": 0, "<eos>": 1, "a": 2}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    digest = hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    (tmp_path / "corpus.txt").write_text("a " * 999)
    for name in ["own"] * saved + ["other"] * resumed:
        folder = LocalFolder(str(tmp_path / name / "step-00000001"))
        folder.publish("manifest.json", encoded(Manifest(1, {"data": {"tokenizer": digest}}, {}, {}))[0])
    text_of = {"source": "text", "files": [str(tmp_path / "corpus.txt")], "tokenizer": str(tmp_path), "seq_len": 16}
    resume = {"resume_from": "/other", "resume_data": data} if resumed else {}
    spec = TrainSpec.model_validate({"model": LLAMA, "data": text_of, "steps": 2, "global_batch": 2, **resume})
    run = Run(job="a", train=spec, checkpoints=str(tmp_path / "own"), cache=tmp_path / "cache")
    tokens = _opened(run.model_copy(update={"resume": str(tmp_path / "other") if resumed else None}), lambda: None)
    assert isinstance(tokens, Tokens) and tokens.held_out[-1] == end
    assert (tokens.order.tokenizer == digest) == (end == 0)


@pytest.mark.parametrize(
    ("theirs", "field", "says"),
    [
        ({"sha256": "other"}, "data.tokenizer", r"ranks \[1\] have other tokens of the same text"),
        ({"order": {"seed": 1}, "sha256": "other"}, "data.source", r"ranks \[1\] read other data"),
        ({}, None, ""),
    ],
    ids=["tokens", "text", "none"],
)
def test_ranks_with_other_tokens_are_refused(
    theirs: dict[str, Any], field: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the same text: a token cache of their node was made by another version of the tokenizers library."""
    (tmp_path / "corpus.txt").write_text("a line of the corpus\n" * 400)
    data = DataSpec(source="text", files=[str(tmp_path / "corpus.txt")], seq_len=16)
    tokens = open_tokens(data, tmp_path / "cache", seed=0, global_batch=2)
    description = (tmp_path / "cache" / f"{tokens.order.corpus}.json").read_text()
    assert tokens.sha256 and f'"{tokens.sha256}"' in description
    peer = (replace(tokens.order, **theirs.get("order", {})), theirs.get("sha256", tokens.sha256))

    def gathered(everyone: list[object], own: object) -> None:
        everyone[:] = [own, peer]

    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_gather_object", gathered)
    if field is None:
        _check_tokens(tokens, ModelSpec())
        return
    with pytest.raises(Refusal, match=says) as refused:
        _check_tokens(tokens, ModelSpec())
    assert refused.value.field == field
    assert field == "data.source" or f"{tokens.order.corpus}.json" in refused.value.remedy


@pytest.mark.parametrize("trained", [True, False])
def test_a_complex_parameter_is_refused(trained: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real dtype it would be trained without its imaginary part."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "complex_module.py").write_text(
        "import torch\n"
        "from torch import nn\n\n\n"
        "def make(trained):\n"
        "    module = nn.Module()\n"
        "    module.filter = nn.ParameterList([nn.Parameter(torch.ones(3, dtype=torch.complex64), trained)])\n"
        "    return module\n"
    )
    model = {"import": "complex_module:make", "code": str(tmp_path), "args": {"trained": trained}}
    with pytest.raises(Refusal, match=r"filter\.0 is a parameter of torch\.complex64") as refused:
        _imported(ModelSpec.model_validate(model))
    assert refused.value.field == "model.import"
    parameter = torch.nn.Parameter(torch.view_as_real(torch.ones(3, dtype=torch.complex64))).bfloat16()
    filtered = torch.view_as_complex(parameter.float())  # what the remedy says
    assert "torch.view_as_real" in refused.value.remedy
    assert "torch.view_as_complex(parameter.float())" in refused.value.remedy
    assert filtered.grad_fn is not None
    del sys.modules["complex_module"]


@pytest.mark.parametrize("zero", [0, 3])
def test_ranks_update_the_same_parameters_on_the_host(zero: int, tmp_path: Path) -> None:
    """Of 9 words the last of 4 tensor ranks has no row: it counts the embedding like the others, which share its norms."""
    layout = {"data": 2, "tensor": 4, "zero": zero}
    given = {"model": {**LLAMA, "kv_heads": 4, "vocab": 9}, "data": {"source": "text", "files": ["/a"], "seq_len": 8}}
    spec = TrainSpec.model_validate(
        {**given, "steps": 1, "global_batch": 2, "layout": layout, "precision": "fp32", "offload": {"optimizer": 0.03}}
    )
    run = Run(job="a", train=spec, checkpoints=str(tmp_path), cache=tmp_path)
    everywhere: dict[str, set[bool]] = {}
    for rank in range(8):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=8)
        try:
            parts = compose(run, make_mesh(spec.layout, torch.device("cpu")), _tokens(spec, 9))
        finally:
            dist.destroy_process_group()
        assert isinstance(parts.optimizer, HostOptimizer)
        resident = parts.optimizer._resident
        assert resident is not None
        for shard in parts.parallel.data.shards:
            everywhere.setdefault(shard.name, set()).add(shard.tensor not in resident.state)
    assert all(len(choices) == 1 for choices in everywhere.values()), everywhere
    assert {True} in everywhere.values()
