"""`advise` needs no control plane: rows of different degrees, lines for a spec, and what is wrong with its option or field."""

import json
from pathlib import Path

import pytest
import yaml

from shardyard.api.cli.commands import local_hardware
from shardyard.api.cli.main import run
from shardyard.strategies.advisor.hardware import Link
from shardyard.strategies.memory_options import Offload
from shardyard.workers.advisor.known_hardware import Measured
from shardyard.workers.spec import TrainSpec

SPEC = """\
name: tiny
train:
  model: { preset: micro }
  data: { seq_len: 128 }
  steps: 10
  global_batch: 16
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    return str(path)


def test_the_fastest_layouts_are_shown_with_their_parts(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", spec, "--world", "4", "--top", "3"]) == 0
    shown = capsys.readouterr().out
    for text in ("4 ranks", "LAYOUT", "MESSAGES", "BUBBLE", "tokens/s", "Left out", "candidates"):
        assert text in shown
    first = next(line for line in shown.splitlines() if line.strip().startswith("layout: {"))
    layout = yaml.safe_load(first)["layout"]
    train = {**yaml.safe_load(SPEC)["train"], "layout": layout}
    spec_of_it = TrainSpec.model_validate(train)
    spec_of_it.check()
    assert spec_of_it.layout.world_size == 4


@pytest.mark.parametrize(
    ("more", "recompute", "offload"),
    [
        ("", None, None),
        ("  offload: { optimizer: 1.0 }\n", None, {}),
        ("  offload: { parameters: true }\n  layout: { data: 4, zero: 3 }\n", None, {}),
        ("  layout: { auto: { world: 4 } }\n  recompute: every-2\n", {"mode": "full", "every": 2}, None),
    ],
    ids=["plain", "optimizer-offloaded", "parameters-offloaded", "every-2"],
)
def test_the_lines_select_the_row_in_the_spec(
    more: str, recompute: object, offload: object, spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the row is without is left out of the spec by its line, too."""
    Path(spec).write_text(SPEC + more)
    assert run(["advise", spec, "--world", "4", "--json"]) == 0
    for row in json.loads(capsys.readouterr().out)["layouts"]:
        chosen = TrainSpec.model_validate({**yaml.safe_load(SPEC + more)["train"], **row["train"]})
        chosen.check()
        assert row["train"].get("offload") == offload and chosen.offload == Offload()
        assert recompute in (None, row["train"]["recompute"])
    assert run(["advise", spec, "--world", "4"]) == 0
    printed = capsys.readouterr().out
    assert ("full, every 2" in printed) is (recompute is not None) and "Nothing fits without offload" not in printed


def test_json_has_all_of_it(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", spec, "--world", "8", "--gpu", "A100 80GB", "--gpus-per-node", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["world_size"] == 8 and found["hardware"]["ranks_per_node"] == 4
    seconds = [row["seconds"] for row in found["layouts"]]
    assert 2 < len(seconds) <= 10 and seconds == sorted(seconds)
    for row in found["layouts"]:
        parts = ("compute_s", "recompute_s", "bubble_s", "optimizer_s")
        messages = sum(one["seconds"] for one in row["messages"])
        assert row["seconds"] == pytest.approx(sum(row[part] for part in parts) + messages)
        assert row["needed_bytes"] > sum(kind["bytes"] for kind in row["kinds"])
    degrees = [
        tuple(row["train"]["layout"].get(axis, 1) for axis in ("data", "tensor", "context", "pipeline"))
        for row in found["layouts"]
    ]
    assert len(set(degrees)) == len(degrees)


def test_what_is_given_of_the_hardware_counts(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--intra-gbps", "80", "--inter-gbps", "8", "--peak-tflops", "10", "--mfu", "0.3"]
    assert run(["advise", spec, "--world", "2", "--json", *options]) == 0
    hardware = json.loads(capsys.readouterr().out)["hardware"]
    assert hardware["flops"] == pytest.approx(3e12)
    assert hardware["intra"]["bandwidth"] == pytest.approx(8e9)
    assert hardware["inter"]["bandwidth"] == pytest.approx(0.8e9)


def test_a_spec_for_cpus_is_advised_for_them(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(spec).write_text(f"{SPEC}resources: {{ device: cpu }}\n")
    assert run(["advise", spec, "--world", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hardware"]["device"] == "cpu"
    assert run(["advise", spec, "--world", "4", "--gpu", "L4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hardware"]["device"] == "cuda"


def test_values_of_the_command_line_count(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", spec, "resources.device=cpu", "train.layout={data: 2}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["hardware"]["device"], found["world_size"]) == ("cpu", 2)


def test_measurements_count(spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(2e9, 1e-3, 3e9, Link(4e8, 5e-5))
    monkeypatch.setattr(local_hardware, "measured_here", lambda train, vocab, world: measured)
    monkeypatch.setattr(local_hardware, "gpu_here", lambda: None)
    assert run(["advise", spec, "--world", "2", "--measure", "--json"]) == 0
    hardware = json.loads(capsys.readouterr().out)["hardware"]
    assert (hardware["device"], hardware["flops"], hardware["block_s"]) == ("cpu", 2e9, 1e-3)
    assert hardware["intra"] == {"bandwidth": 4e8, "latency_s": 5e-5}
    assert run(["advise", spec, "--world", "2", "--measure", "--gpu", "H100"]) == 1
    assert "--measure" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "memory"), [([], 23034), (["--gpu", "L40"], 46068)])
def test_the_memory_is_that_of_the_gpu_that_is_measured(
    options: list[str], memory: int, spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_hardware, "measured_here", lambda train, vocab, world: Measured(2e12, 1e-3, 3e11))
    monkeypatch.setattr(local_hardware, "gpu_here", lambda: "NVIDIA L4")
    assert run(["advise", spec, "--world", "2", "--measure", "--json", *options]) == 0
    hardware = json.loads(capsys.readouterr().out)["hardware"]
    assert (hardware["device"], hardware["flops"], hardware["memory_bytes"]) == ("cuda", 2e12, memory << 20)


def test_offload_is_shown_with_what_it_takes_of_host_memory(
    spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared where a node like the cluster's is measured."""
    Path(spec).write_text(SPEC.replace("micro", "7B, vocab: 32000"))
    assert run(["advise", spec, "--world", "2", "--gpu", "A100 40GB"]) == 0
    said = capsys.readouterr().err
    assert "2 ranks of a node hold 75.8 GiB in host memory. How much a node has is not known here." in said
    assert run(["advise", spec, "--world", "2", "--gpu", "A100 40GB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [held] = found["layouts"][0]["host"]
    assert (
        held["kind"] == "optimizer"
        and 37 << 30 < held["bytes"] < 39 << 30
        and found["hardware"]["host_memory_bytes"] is None
    )
    monkeypatch.setattr(local_hardware, "measured_here", lambda train, vocab, world: Measured(2e12, 1e-3, 3e11))
    monkeypatch.setattr(local_hardware, "gpu_here", lambda: "NVIDIA A100-PCIE-40GB")
    monkeypatch.setattr(local_hardware, "host_memory_here", lambda ranks: 32 * ranks << 30)
    assert run(["advise", spec, "--world", "2", "--measure"]) == 1
    printed = capsys.readouterr()
    assert "GiB of host memory per rank or more" in printed.err and "host memory" in printed.out


def test_the_host_memory_of_this_machine_counts_for_nodes_of_as_many_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_hardware.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(local_hardware, "total_memory", lambda: 64)
    assert [local_hardware.host_memory_here(ranks) for ranks in (1, 2, 3)] == [64, 64, None]


@pytest.mark.full
def test_this_machine_is_measured(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", spec, "--world", "2", "--measure", "--json"]) == 0
    hardware = json.loads(capsys.readouterr().out)["hardware"]
    assert hardware["ranks_per_node"] == 2 and hardware["intra"]["bandwidth"] > 1e6


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gpu", "H1"], ("--gpu", "H100 PCIe")),
        (["--world", "0"], ("--world",)),
        (["--world", "5000"], ("--world",)),
        (["--mfu", "2"], ("--mfu",)),
        (["--inter-gbps", "0"], ("--inter-gbps",)),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(
    spec: str, more: list[str], said: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", spec, *more]) == 1
    error = capsys.readouterr().err
    assert all(text in error for text in said)


def test_an_open_layout_needs_a_number_of_ranks_and_keeps_what_it_fixes(
    spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(spec).write_text(f"{SPEC}  layout: auto\n")
    assert run(["advise", spec]) == 1
    assert "train.layout.auto.world" in capsys.readouterr().err
    assert run(["advise", spec, "--world", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["world_size"] == 4
    Path(spec).write_text(f"{SPEC}  layout: {{ auto: {{ world: 8 }}, zero: 3 }}\n")
    assert run(["advise", spec, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["world_size"] == 8 and {row["train"]["layout"].get("zero") for row in found["layouts"]} == {3}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: c\ncommand: [python, train.py]\nranks: 2\n", ("command", "train")),
        (SPEC.replace("{ preset: micro }", "{ import: 'm:f' }"), ("train.model", "a module of your own")),
        (SPEC.replace("steps: 10", "steps: 10\n  checkpoint: { export: true, final: false }"), ("checkpoint.export",)),
    ],
)
def test_a_spec_without_an_answer_is_refused(
    text: str, said: tuple[str, ...], spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(spec).write_text(text)
    assert run(["advise", spec, "--world", "2"]) == 1
    error = capsys.readouterr().err
    assert all(one in error for one in said), error


def test_what_fits_nowhere_is_said(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(spec).write_text(SPEC.replace("micro", "70B"))
    assert run(["advise", spec, "--world", "2", "--gpu", "T4"]) == 1
    printed = capsys.readouterr()
    assert "No layout of 2 ranks fits" in printed.err and "do not fit" in printed.out
