"""What a trainer builds: it beats while it makes tokens, which may take hours, and refuses modules that it cannot train."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness.models import LLAMA
from tokenizers import Tokenizer, models, pre_tokenizers

from shardyard.strategies.layout import Refusal
from shardyard.strategies.mesh import make_mesh
from shardyard.workers.checkpoint.manifest import Manifest, encoded
from shardyard.workers.data import token_cache
from shardyard.workers.data.dataset import Tokens
from shardyard.workers.model_spec import ModelSpec
from shardyard.workers.spec import Run, TrainSpec
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.trainer.build import _imported, _opened, allocate
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
