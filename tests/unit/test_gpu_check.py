"""The scripts behind `make gpu-check`, on the CPU, with nothing but torch, numpy and pydantic to import."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from shardyard.strategies import cxx_compiler, torch_version
from shardyard.strategies.layout import Refusal
from shardyard.workers.host_memory import MemoryLimit
from shardyard.workers.trainer.restore import SnapshotMemory
from shardyard.workers.trainer.snapshot_allocation import Allocation

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu_check import processes, report  # noqa: E402
from gpu_check.checks import Check, Place, Skip, lines_of  # noqa: E402
from gpu_check.report import Bound, Line, Machine, Report, measured, of_json, skipped  # noqa: E402
from gpu_check.sections import NAMES, first_values, kernels, memory, snapshots  # noqa: E402
from gpu_check.sizes import FULL, TINY  # noqa: E402

MACHINE = Machine("GPU", "2.13.0", "3.11", "0.1.0", 8)

ALONE = """
import sys

REST = set("ray yaml fastapi starlette sqlalchemy alembic typer rich psutil safetensors tokenizers httpx2 grpc".split())


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REST:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""

#: A process of the check without torch: it writes one good line per section, and breaks in those whose names say so.
FAKE = """
import json, os, signal, sys, time

orders = json.loads(sys.argv[2])


def append(entry):
    with open(orders["out"], "a") as file:
        file.write(json.dumps(entry) + "\\n")


append({"machine": {"device": "GPU", "torch": "2.13.0", "python": "3.11", "shardyard": "0.1.0", "cores": 8}})
for section in orders["sections"]:
    append({"begin": section})
    if section == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if section == "hangs":
        time.sleep(600)
    if section == "has none":
        sys.exit(4)
    line = {"name": "n", "value": 1.0, "unit": "", "bound": None, "verdict": "ok", "reason": "", "section": section}
    append({"line": line})
    append({"end": section})
"""


def check(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the check, in whose processes other packages cannot be imported."""
    (folder / "sitecustomize.py").write_text(ALONE)
    path = os.pathsep.join([str(folder), "typings"])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "benchmarks/gpu.py", "--out", str(folder / "out"), *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900, check=False)


def found(folder: Path) -> Report:
    text = (folder / "out" / "gpu-check.json").read_text()
    whole = of_json(text)
    assert report.to_json(whole) == text
    assert (folder / "out" / "gpu-check.md").read_text() == report.markdown(whole)
    return whole


@pytest.mark.full
def test_a_part_of_it_runs_on_a_cpu_without_other_packages(tmp_path: Path) -> None:
    done = check(tmp_path, "--device", "cpu", "--only", "kernels", "tracing")
    assert done.returncode == 0, done.stdout + done.stderr
    whole = found(tmp_path)
    assert whole.machine.device == "CPU" and whole.good
    assert {line.section for line in whole.lines} == {"kernels", "tracing"}
    names = [line.name for line in whole.lines]
    assert "model: 4 heads of 128 over 2 key heads, causal, bf16 against fp64" in names
    assert done.stdout.count("  ok ") == sum(line.verdict == "ok" for line in whole.lines) >= 8


@pytest.mark.full
@pytest.mark.timeout(900)
def test_all_of_it_runs_on_a_cpu(tmp_path: Path) -> None:
    done = check(tmp_path, "--device", "cpu", "--seconds", "800")
    assert done.returncode == 0, done.stdout + done.stderr
    whole = found(tmp_path)
    assert {line.section for line in whole.lines} == set(NAMES)
    assert all(line.reason for line in whole.lines if line.verdict == "skipped")
    skipping = {line.section for line in whole.lines if line.verdict == "skipped"}
    assert skipping <= {"kernels", "memory", "synchronisations", "offload", "recovery", "speed"}


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = check(tmp_path, "--only", "kernels")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "No CUDA device here: nothing was checked.\n"
    assert not (tmp_path / "out").exists()


def make(folder: Path, before: str = "") -> "subprocess.CompletedProcess[str]":
    """`make gpu-check` with this Python, into whose path `before` is put."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH="{before}$PYTHONPATH"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    command = ["make", "--no-print-directory", "gpu-check", f"GPU_PYTHON={python}"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_without_a_package_of_the_tests_they_are_left_out_and_it_says_which(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ALONE)
    done = make(tmp_path, before=f"{tmp_path}:")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()[-1]
    assert said.startswith("The GPU tests were left out: ") and "No module named 'httpx2'" in said


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_after_a_figure_that_failed_the_gpu_tests_run_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f'{ALONE}\nif "benchmarks/gpu.py" in sys.argv:\n    raise SystemExit(1)\n'
    )
    done = make(tmp_path, before=f"{tmp_path}:")
    assert done.returncode != 0
    assert "The GPU tests were left out: " in done.stdout, "the second part has run"


@pytest.mark.full
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_all_tests_that_need_a_gpu_are_collected(tmp_path: Path) -> None:
    """Without a GPU each of them is skipped."""
    done = make(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for file in ("parity/test_gpu", "parity/test_gpu_ras", "trainer/test_segment_mapping", "trainer/test_cpu_binding"):
        assert f"{file}.py" in done.stdout
    assert re.search(r"^=+ \d+ skipped, \d+ deselected", done.stdout, re.MULTILINE), done.stdout


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setattr(processes, "SCRIPT", script)
    return tmp_path


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_section_whose_process_dies_is_a_failed_line_and_the_rest_go_on(fake: Path, device: str) -> None:
    shown: list[Line] = []
    sections = ["first", "crashes", "last"]
    machine, lines = processes.run_sections(device, "tiny", sections, fake, 100.0, shown.append)
    assert machine == MACHINE and lines == shown
    assert [(line.section, line.verdict) for line in lines] == [("first", "ok"), ("crashes", "failed"), ("last", "ok")]
    assert signal.SIGSEGV.name in lines[1].reason


def test_a_section_that_hangs_is_killed_and_what_is_left_is_skipped(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.0)
    _, lines = processes.run_sections("cuda", "tiny", ["hangs", "last"], fake, 2.0, lambda _: None)
    assert [(line.section, line.verdict) for line in lines] == [("hangs", "failed"), ("last", "skipped")]


def test_a_machine_without_a_device_is_known_by_the_status_of_its_process(fake: Path) -> None:
    with pytest.raises(processes.NoDevice):
        processes.run_sections("cuda", "tiny", ["has none"], fake, 100.0, lambda _: None)


def _raises(error: Exception) -> Iterable[Line]:
    yield measured("before", 1.0)
    raise error


def test_a_check_that_raises_is_a_failed_line_with_its_error_and_one_that_cannot_run_is_skipped() -> None:
    checks = [
        Check("broken", lambda: _raises(ValueError("of no use\nmore"))),
        Check("not here", lambda: _raises(Skip("a CPU has none"))),
        Check("refused", lambda: _raises(Refusal("precision", "fp8 needs torchao.", "Use bf16."))),
        Check("good", lambda: iter([measured("value", 2.0, "s", at_most=3.0)])),
    ]
    lines = list(lines_of("here", checks, float("inf")))
    assert [(line.name, line.verdict) for line in lines if line.name != "before"] == [
        ("broken", "failed"),
        ("not here", "skipped"),
        ("refused", "skipped"),
        ("value", "ok"),
    ]
    reasons = {line.name: line.reason for line in lines}
    assert reasons["broken"].startswith("ValueError: of no use (test_gpu_check.py:")
    assert reasons["not here"] == "a CPU has none" and "torchao" in reasons["refused"]
    assert sum(line.name == "before" for line in lines) == 3, "what was measured before counts"
    assert {line.section for line in lines} == {"here"}


@pytest.fixture
def cpu(tmp_path: Path) -> Place:
    return Place(torch.device("cpu"), TINY, tmp_path, tmp_path)


def test_on_an_untried_torch_what_needs_private_functions_is_skipped_and_the_rest_measured(
    cpu: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    (state,) = (check for check in memory.checks(cpu) if check.name.endswith(", state"))
    (line,) = lines_of("memory", [state], float("inf"))
    assert line.verdict == "skipped" and "a probe needs torch 1.0.x" in line.reason
    model, kernel = lines_of("kernels", kernels.checks(cpu)[:1], float("inf"))
    assert model.name.startswith("model: ") and model.verdict == "ok"
    assert kernel.verdict == "skipped" and "torch 1.0.x" in kernel.reason


def test_first_values_are_compared_and_timed(cpu: Place) -> None:
    bits, drawing = lines_of("first_values", first_values.checks(cpu), float("inf"))
    assert (bits.value, bits.unit, bits.verdict) == (0, "of 2,045,063", "ok")
    assert drawing.value is not None and drawing.value > 0


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.full
def test_without_memory_for_snapshots_what_a_step_feels_of_them_is_skipped(
    cpu: Place, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = MemoryLimit("pod", "memory.max of the cgroup /pod", 1 << 30, 1 << 20)
    memory = partial(SnapshotMemory, allocation=Allocation(limits=lambda: (tight,)))
    monkeypatch.setattr(snapshots, "SnapshotMemory", memory)
    lines = list(lines_of("snapshots", snapshots.checks(cpu)[2:], float("inf")))
    assert [line.verdict for line in lines] == ["skipped", "skipped"], [line.reason for line in lines]
    assert all("1.0 MB of 1.1 GB" in line.reason for line in lines)


def test_checks_after_the_time_limit_are_skipped() -> None:
    def never() -> Iterator[Line]:
        raise AssertionError

    (line,) = lines_of("here", [Check("late", never)], deadline=0.0)
    assert line.verdict == "skipped" and "--seconds" in line.reason


def test_a_value_is_judged_by_its_bound() -> None:
    assert measured("a", 1.0).verdict == "ok"
    assert [measured("a", v, at_most=2.0).verdict for v in (2.0, 2.1)] == ["ok", "failed"]
    assert [measured("a", v, at_least=2.0).verdict for v in (2.0, 1.9)] == ["ok", "failed"]
    assert measured("a", 2.1, at_most=2.0).bound == Bound("at most", 2.0)
    nothing = measured("a", float("nan"), at_most=2.0)
    assert nothing.verdict == "failed" and nothing.value is None, "JSON has no such number"


def test_a_ratio_is_a_median_with_its_spread() -> None:
    line = report.ratio("a", [1.2, 0.9, 1.0, 1.1], at_most=1.1)
    assert line.value == pytest.approx(1.05) and line.reason == "0.900 to 1.200, 4 pairs" and line.verdict == "ok"


def test_the_table_has_a_row_per_line_and_the_json_comes_back() -> None:
    lines = (
        Line("speed | ours", 12345.678, "tokens/s", Bound("at least", 10000.0), "ok", "two\nlines", "speed"),
        Line("late", 2.0, "s", Bound("at most", 1.5), "failed", "", "recovery"),
        Line(**{**vars(skipped("fp8", "needs torchao")), "section": "speed"}),
    )
    whole = Report("2026-01-01T00:00:00+00:00", 61.0, MACHINE, lines)
    assert of_json(report.to_json(whole)) == whole and not whole.good
    assert json.loads(report.to_json(whole))["version"] == report.VERSION
    text = report.markdown(whole).splitlines()
    assert "1 ok, 1 failed, 1 skipped, 61 s." in text
    assert text[-3:] == [
        "| speed | speed \\| ours | 12,346 tokens/s | at least 10,000 | ok | two lines |",
        "| recovery | late | 2 s | at most 1.5 | **failed** |  |",
        "| speed | fp8 |  |  | skipped | needs torchao |",
    ]
    with pytest.raises(ValueError, match="version 0"):
        of_json(report.to_json(whole).replace('"version": 1', '"version": 0'))


def test_the_dry_runs_that_are_kept_are_of_the_sizes_that_are_measured() -> None:
    """Written by `python benchmarks/gpu.py --write-dry-runs`."""
    kept = json.loads(memory.KEPT.read_text())
    assert {name: one["spec"] for name, one in kept.items()} == {
        name: memory._key(m) for name, m in FULL.models.items()
    }
    assert all(one["peak_bytes"] > 2**30 for one in kept.values())


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.skipif(cxx_compiler.found() is None, reason="a dry run compiles its fake device: no C++ compiler here")
@pytest.mark.parametrize("name", FULL.models)
def test_the_dry_runs_that_are_kept_are_as_they_would_be_now(name: str) -> None:
    kept = json.loads(memory.KEPT.read_text())[name]["peak_bytes"]
    assert memory.dry_run(FULL.models[name]) == pytest.approx(kept, rel=0.01), "write them again"
