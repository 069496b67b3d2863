"""What goes on goes on with the next sample, whatever came before; other data are refused, and a restart of the data happens once."""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import LLAMA
from harness.ranks import group, spawn, train, train_rank

from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

SMALL = {"model": {**LLAMA, "layers": 2}, "eval": {"batches": 1}, "probe": {"every": None}}
EIGHT = {**SMALL, "global_batch": 8, "checkpoint": {"every": 1, "keep": 9}}


@pytest.fixture(scope="module")
def saved(root: Path, make_spec: Make) -> str:
    """The checkpoint of step 3 of a run with 8 samples a step."""
    train(make_spec({}, steps=3, **EIGHT), root, "eight")
    return str(root / "checkpoints" / "eight" / "step-00000003")


def read(rank: int, world: int, port: int, orders: str) -> Any:
    """`train_rank`, with the sample that each batch began with, and the tokens that each step reports."""
    from shardyard.workers.data.dataset import Tokens

    firsts: list[int] = []
    batch = Tokens.batch

    def noted(tokens: Tokens, first: int, rows: Any) -> Any:
        firsts.append(first)
        return batch(tokens, first, rows)

    Tokens.batch = noted  # type: ignore[method-assign]
    result = train_rank(rank, world, port, orders)
    return {**result, "events": [*result["events"], ("firsts", firsts)]}


def positions(run: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The first sample of each step, and after it the tokens that had been trained on, in windows."""
    firsts = dict(event for event in run["events"] if event[0] == "firsts")["firsts"]
    return firsts, [data["tokens"] // 32 for kind, data in run["events"] if kind == "step"]


def test_jobs_go_on_from_each_other_sample_by_sample(root: Path, make_spec: Make, saved: str) -> None:
    wider = make_spec({"data": 2}, steps=5, **{**EIGHT, "global_batch": 16, "resume_from": saved})
    second = train(wider, root, "sixteen", resume=saved, work=read)
    assert positions(second) == ([24, 40], [40, 56])
    newest = str(root / "checkpoints" / "sixteen" / "step-00000005")
    restarted = make_spec({}, steps=7, **{**EIGHT, "global_batch": 4, "resume_from": newest, "resume_data": "restart"})
    third = train(restarted, root, "four", resume=newest, work=read)
    assert positions(third) == ([0, 4], [60, 64])
    (root / "checkpoints" / "four" / "step-00000007" / "manifest.json").unlink()
    again = train({**restarted, "steps": 8}, root, "four", resume=newest, work=read)
    assert positions(again) == ([4, 8], [64, 68]), "its own checkpoint does not restart the data"


def test_a_repair_goes_on_from_memory_with_the_next_sample(root: Path, make_spec: Make, saved: str) -> None:
    spec = make_spec({}, steps=7, **{**EIGHT, "global_batch": 12, "resume_from": saved, "snapshot": {"every": 1}})
    run = Run(
        job="memory",
        train=TrainSpec.model_validate(spec),
        checkpoints=str(root / "checkpoints" / "memory"),
        cache=root / "cache",
        resume=saved,
    )
    (found,) = spawn(repaired_from_memory, 1, run.model_dump_json(by_alias=True))
    whole = train({**spec, "snapshot": {"every": 0}}, root, "unbroken", resume=saved)
    assert found == dict(enumerate(whole["losses"], start=4))


def repaired_from_memory(rank: int, world: int, port: int, orders: str) -> dict[int, float]:
    """Losses by step: up to step 5 of a trainer that goes then, and after it of the next one, which has its snapshots."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.snapshot import shared_memory
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import allocate
    from shardyard.workers.trainer.heartbeat import Heartbeat
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import SnapshotMemory

    run, device, fds = Run.model_validate_json(orders), group(rank, world, port), shared_memory.allocate()
    losses: dict[int, float] = {}

    def note(kind: str, data: dict[str, Any]) -> None:
        if kind == "step":
            assert losses.setdefault(data["step"], data["loss"]) == data["loss"]

    for memory, last in ((SnapshotMemory(fds), 5), (SnapshotMemory(fds, 5), 7)):
        heartbeat = Heartbeat()
        asked = lambda last=last, at=heartbeat: StopRequest.STOP if at.step == last else StopRequest.NO  # noqa: E731
        instruments = Instruments(asked, heartbeat)
        assemble(allocate(run, make_mesh(run.train.layout, device)), note, instruments, memory).run()
    return losses


@pytest.fixture
def changed(make_spec: Make, tmp_path: Path, root: Path) -> Callable[[str], dict[str, Any]]:
    """`changed(part)`: a spec that is another one in what `part` of its samples' order says."""
    data = make_spec({})["data"]
    text = Path(data["files"][0]).read_bytes()
    (tmp_path / "text.txt").write_bytes(text[:-1] + b"!")
    (tmp_path / "tokenizer.json").write_text(_bytes_in_another_order())

    def spec(part: str) -> dict[str, Any]:
        others = {
            "data.seq_len": {"data": {**data, "seq_len": 16}},
            "data.validation": {"data": {**data, "validation": 0.1}},
            "data.tokenizer": {"data": {**data, "tokenizer": str(tmp_path / "tokenizer.json")}},
            "data": {"data": {**data, "files": [str(tmp_path / "text.txt")]}},
            "seed": {"seed": 8},
        }
        return make_spec({}, steps=4, **{**EIGHT, "model": {**LLAMA, "layers": 2, "vocab": 256}, **others[part]})

    return spec


def _bytes_in_another_order() -> str:
    """A tokenizer's file: each byte is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return str(tokenizer.to_str())


@pytest.mark.parametrize("part", ["data.seq_len", "data.validation", "data.tokenizer", "data", "seed"])
def test_other_data_are_refused_by_the_trainers(part: str, changed: Make, root: Path, saved: str) -> None:
    with pytest.raises(RuntimeError, match=rf"Refusal: {part}: the checkpoint was trained with .*resume_data: restart"):
        train(changed(part), root, f"other-{part}", resume=saved)


def test_other_data_restart_with_weights_and_optimizer(changed: Make, root: Path, saved: str) -> None:
    spec = {**changed("data"), "resume_from": saved, "resume_data": "restart"}
    assert positions(train(spec, root, "other-text", resume=saved, work=read)) == ([0], [32])


def test_a_job_whose_files_change_does_not_go_on(changed: Make, root: Path, make_spec: Make) -> None:
    spec = changed("data")
    train({**spec, "steps": 2}, root, "changing")
    Path(spec["data"]["files"][0]).write_bytes(b"other text\n" * 5000)
    with pytest.raises(RuntimeError, match="Refusal: data: the checkpoint was trained with another text"):
        train(spec, root, "changing")
    assert len(list((root / "checkpoints" / "changing").iterdir())) == 2


def test_without_the_service_a_job_goes_on_as_well(root: Path, make_spec: Make, saved: str, tmp_path: Path) -> None:
    file = tmp_path / "onward.json"
    file.write_text(json.dumps({"name": "onward", "train": make_spec({}, steps=4, **EIGHT, resume_from=saved)}))
    (lines,) = spawn(run_alone, 1, str(file), str(tmp_path))
    events = [json.loads(line) for line in lines]
    assert [(e["data"]["step"], e["data"]["tokens"]) for e in events if e["kind"] == "step"] == [(4, 4 * 8 * 32)]


def run_alone(rank: int, world: int, port: int, file: str, out: str) -> list[str]:
    """What `python -m shardyard.workers.local` prints, without torchrun."""
    from shardyard.workers.local import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([file, "--json", "--device", "cpu", "--out", out]) == 0
    return printed.getvalue().splitlines()
