"""`verify` needs no control plane: a right layout is equal, a model that mixes a batch is not, a changed certificate is refused."""

import json
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from harness.certificates import certificate
from harness.client_stand_in import ClientStandIn

from shardyard.api.cli.commands import verify
from shardyard.api.cli.commands.local_proof import _digest
from shardyard.api.cli.main import run
from shardyard.service.certificate_signature import signed
from shardyard.service.errors import MissingFile
from shardyard.service.schemas.certificate import Certificate
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.workers.certificate.own_code import digest
from shardyard.workers.model_spec import ModelSpec

SPEC = """\
name: proof
train:
  model: { preset: nano, layers: 2 }
  data: { seq_len: 32 }
  layout: { data: 2, zero: 3 }
  precision: bf16
  steps: 1000
  global_batch: 8
"""
#: Its output for a sequence depends on the other sequences of the rank: no strategy is to blame, and none can repair it.
OWN = """\
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(vocab, 16), nn.BatchNorm1d(16, track_running_stats=False), nn.Linear(16, vocab)

    def forward(self, tokens):
        return self.head(self.norm(self.embed(tokens).transpose(1, 2)).transpose(1, 2))

def make(vocab_size):
    return Model(vocab_size)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "proof.yaml").write_text(SPEC)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["proof.yaml", "--check"], "is no certificate"),
        (["none.json", "--check"], "cannot be read"),
        (["proof.yaml", "--steps", "1"], "--steps"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", *arguments]) != 0
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("out", ["none/proof.json", "proof.html", "folder", "folder/..", "proof.yaml/x.json"])
def test_a_place_that_cannot_be_written_is_refused_before_the_training(
    out: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "folder").mkdir()
    monkeypatch.setattr(verify, "_proven", lambda *_: pytest.fail("It trains."))
    before = sorted(folder.rglob("*"))
    assert run(["verify", "proof.yaml", "--out", out]) == 1
    refused = capsys.readouterr().err
    assert "--out" in refused and "Name a file" in refused
    assert sorted(folder.rglob("*")) == before


def test_a_result_is_shown_though_it_cannot_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def proven(*_: object) -> Certificate:
        (folder / "proof.certificate.json").mkdir()  # while it trains
        return signed(certificate(), Settings())

    monkeypatch.setattr(verify, "_proven", proven)
    assert run(["verify", "proof.yaml"]) == 1
    printed = capsys.readouterr()
    assert "proof: equal to one process" in printed.out and "cannot be written" in printed.err


class Service(ClientStandIn):
    """A client of a service that has one job, and keeps its certificates."""

    attached: ClassVar[list[Certificate]] = []

    def job(self, job: str) -> Job:
        spec = yaml.safe_load(SPEC)
        return Job.model_validate({"id": job, "name": "proof", "state": "queued", "spec": spec, "created_at": 1.0})

    def attach_certificate(self, job: str, certificate: Certificate) -> Job:
        self.attached.append(certificate)
        return self.job(job)


def test_the_code_of_a_home_folder_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was not submitted from a file has the path as it was written."""
    monkeypatch.setenv("HOME", str(folder))
    train = JobSpec.model_validate(yaml.safe_load(SPEC)).train
    home, unknown = (
        train.model_copy(update={"model": ModelSpec.model_validate({"import": "own:make", "code": code})})
        for code in ("~", "~no-such-user/own")
    )
    assert _digest(home) == digest(folder)
    with pytest.raises(MissingFile, match="this machine has no such user") as refused:
        _digest(unknown)
    assert refused.value.field == "train.model.code"


def test_a_result_is_kept_though_its_reader_ends_early(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `| head` does: then rich ends the command."""
    made = signed(certificate(), Settings())

    def cut(*_: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(verify, "_proven", lambda *_: made)
    monkeypatch.setattr(verify, "_show", cut)
    monkeypatch.setattr(verify, "Client", Service)
    monkeypatch.setattr(Service, "attached", [])
    assert run(["verify", "--job", "job-1"]) == 1
    assert Certificate.model_validate_json((folder / "proof.certificate.json").read_bytes()) == made
    assert Service.attached == [made]


@pytest.mark.full
def test_a_layout_is_equal_and_its_certificate_cannot_be_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "proof.yaml", "--steps", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    path = folder / "proof.certificate.json"
    assert json.loads(path.read_text()) == printed and "equal to one process" in path.with_suffix(".html").read_text()
    assert printed["equal"] and [one["what"] for one in printed["numbers"]] == [
        "losses",
        "gradient norms",
        "validation losses",
        "parameters",
        "optimizer state",
    ]
    assert all(one["compared"] > 0 and one["difference"] < 1e-12 for one in printed["numbers"])
    flows = {(one["axis"], one["collective"]): one for one in printed["traffic"]}
    assert flows.keys() >= {("data", "all_gather"), ("data", "reduce_scatter")}
    assert all(one["bytes"] == one["formula_bytes"] for one in printed["traffic"])
    assert run(["verify", str(path), "--check"]) == 0
    path.write_text(path.read_text().replace('"world_size": 2', '"world_size": 4'))
    assert run(["verify", str(path), "--check"]) == 1
    assert "is not what was signed" in capsys.readouterr().err


@pytest.mark.full
def test_a_model_that_mixes_a_batch_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = "{ import: 'own:make', code: ., args: { vocab_size: 256 } }"
    own = SPEC.replace("{ preset: nano, layers: 2 }", own).replace("zero: 3", "zero: 0")
    (folder / "proof.yaml").write_text(own)
    assert run(["verify", "proof.yaml", "--steps", "2"]) == 1
    assert "DIFFERENT" in capsys.readouterr().out
    found = json.loads((folder / "proof.certificate.json").read_text())
    assert not found["equal"] and not found["numbers"][0]["equal"]


@pytest.mark.full
def test_the_ranks_have_the_variables_of_the_spec(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own.py").write_text(
        "import os\nWHERE, KEY = os.environ['DATA_DIR'], os.environ['KEY']\n"
        "def make(vocab_size):\n    raise RuntimeError(f'it has {WHERE} and {KEY}')\n"
    )
    document = yaml.safe_load(SPEC)
    document["train"] |= {"model": {"import": "own:make", "code": ".", "args": {"vocab_size": 256}}, "layout": {}}
    document |= {
        "resources": {"env": {"DATA_DIR": "/data"}},
        "secrets": [{"name": "LOCAL_TEST_KEY", "variable": "KEY"}],
    }
    (folder / "proof.yaml").write_text(yaml.safe_dump(document))
    assert run(["verify", "proof.yaml"]) == 1
    assert "Set the variable LOCAL_TEST_KEY in this shell." in capsys.readouterr().err
    monkeypatch.setenv("LOCAL_TEST_KEY", "k")
    assert run(["verify", "proof.yaml"]) == 1
    assert "RuntimeError: it has /data and k" in capsys.readouterr().err
    document["resources"]["env"] = {"RANK": "3"}
    (folder / "proof.yaml").write_text(yaml.safe_dump(document))
    assert run(["verify", "proof.yaml"]) == 1
    assert "RANK is not for jobs" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize(
    ("layout", "extra"),
    [
        ("{ data: 2, zero: 3, zero_plus_plus: { weights: int8, gradients: int4 } }", "rounds the same blocks"),
        ("{ pipeline: 2, schedule: pipedream }", "takes its gradients as late"),
    ],
)
def test_the_certificate_names_what_one_process_did_besides(
    layout: str, extra: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "proof.yaml").write_text(SPEC.replace("{ data: 2, zero: 3 }", layout))
    assert run(["verify", "proof.yaml"]) == 0
    assert f"equal to one process that {extra}" in capsys.readouterr().out
    path = folder / "proof.certificate.json"
    found = json.loads(path.read_text())
    assert found["equal"] and found["reference"]["extra"] == extra
    assert found["reference"]["difference"] > 1e-9 and found["reference"]["losses_without"] != found["losses"]
    assert f"one process that {extra}" in path.with_suffix(".html").read_text()
    assert run(["verify", str(path), "--check"]) == 0
