"""A checkpoint of any layout continues on any other, on the same curve; on the same layout, with the same bits.

Where gradients were late or rounded before the checkpoint, the curve is that of one process that reads it. Where they are late after it,
its first step takes them where the weights are: one step is compared. (`test_resumed_delays.py` compares more.)

`make parity SEED=7 PAIRS=30` draws layouts that write and layouts that read, from all legal ones; `make test` a few with a fixed seed.
"""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.grid import PAIRS_BATCH, draw_pairs, is_delayed, pair_model
from harness.layouts import BOTH, CUBE, DEEP, GATHER, GRID, INSIDE, SCORES, SMALLER, WINDOWS
from harness.ranks import train

Make = Callable[..., Any]

LAYOUTS: list[dict[str, Any]] = [
    {},
    {"data": 2, "tensor": 2, "pipeline": 2, "zero": 1},
    {"data": 4, "zero": 2},
    {"data": 3, "zero": 3},
    {"data": 2, "tensor": 2, "zero": 3},
    {"pipeline": 2, "schedule": "zbv", "tensor": 2},
    {"data": 3, "zero": 1},
]


@pytest.mark.parametrize("source", range(len(LAYOUTS)))
def test_resumes_on_the_next_layout(source: int, root: Path, make_spec: Make, one_process: Make) -> None:
    first, then = LAYOUTS[source], LAYOUTS[(source + 1) % len(LAYOUTS)]
    saved = train(
        make_spec(first, global_batch=12, steps=5, checkpoint={"every": 3, "final": False}), root, f"first-{source}"
    )
    (checkpoint,) = [data for kind, data in saved["events"] if kind == "checkpoint"]
    assert checkpoint["step"] == 3
    resumed = train(make_spec(then, global_batch=12), root, f"then-{source}", resume=Path(checkpoint["path"]))
    _assert_goes_on(resumed, one_process(make_spec({}, global_batch=12)), 2)


def _assert_goes_on(resumed: Any, expected: Any, steps: int) -> None:
    """`expected`: a run of which the resumed one took the last `steps`."""
    assert len(resumed["losses"]) == steps
    np.testing.assert_allclose(resumed["losses"], expected["losses"][-steps:], rtol=1e-10)
    assert resumed["parameters"].keys() == expected["parameters"].keys()
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(resumed["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


SERVED = {"parameter_server": {"servers": 2}}
ASYNC = {"parameter_server": {"servers": 1, "mode": "async"}}
#: Every way to divide a tensor or a sequence, to hold state elsewhere and to be late, and a layout that exchanges checkpoints with it.
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "2d": ({"tensor": GRID}, {"data": 2, "zero": 1}),
    "2d-pipeline": ({"tensor": GRID, "pipeline": 2, "schedule": "zbv"}, {"data": 4, "zero": 2}),
    "2.5d": ({"tensor": DEEP, "zero": 1}, {"tensor": 2, "pipeline": 2}),
    "3d": ({"tensor": CUBE}, {"data": 2, "zero": 3}),
    "servers": ({"data": 2, **SERVED}, {"pipeline": 2, "schedule": "zbv"}),
    "servers-async": ({"data": 1, **ASYNC}, {"data": 2, "tensor": 2}),
    "pipedream": ({"pipeline": 4, "schedule": "pipedream"}, {"data": 2, "zero": 2}),
    "pipedream-synchronised": ({"pipeline": 2, "schedule": "pipedream", "vertical_sync": True}, {"tensor": 2}),
    "2bw": ({"pipeline": 2, "schedule": "2bw", "data": 2}, {"data": 4, "zero": 3}),
    "zb-h1": ({"pipeline": 4, "schedule": "zb-h1"}, {"tensor": 2, "data": 2}),
    "zb-h2": ({"pipeline": 2, "schedule": "zb-h2", "data": 2, "zero": 1}, {"data": 4, "zero": 2}),
    "dualpipev": ({"pipeline": 2, "schedule": "dualpipev"}, {"data": 2, "zero": 3}),
    "double-ring": (WINDOWS, {"pipeline": 2, "data": 2}),
    "ring-of-ulysses": (BOTH, {"tensor": 2, "data": 2, "zero": 1}),
    "ulysses-of-rings": (INSIDE, {"data": 4, "zero": 1}),
    "all-gather": (GATHER, {"pipeline": 4}),
    "ring-self-attention": (SCORES, {"tensor": 2, "data": 2, "zero": 3}),
}


def rounds(layout: dict[str, Any]) -> bool:
    """Whether ranks send each other rounded numbers."""
    return bool({"weights", "gradients"} & layout.get("zero_plus_plus", {}).keys())


@pytest.fixture
def assert_exchanged(root: Path, make_spec: Make, one_process: Make) -> Callable[..., None]:
    """`assert_exchanged(writer, reader, name, **changes)`: the reader takes the last step, from the checkpoint before it."""

    def check(writer: Any, reader: Any, name: str, **changes: Any) -> None:
        saving = {"every": changes["steps"] - 1, "keep": 5, "final": False}
        train(make_spec(writer, **changes, checkpoint=saving), root, f"writer-{name}")
        path = root / "checkpoints" / f"writer-{name}" / f"step-{saving['every']:08d}"
        resumed = train(make_spec(reader, **changes), root, f"reader-{name}", resume=path)
        alone, inexact = make_spec({}, **changes), is_delayed(writer) or rounds(writer)
        expected = train(alone, root, f"alone-{name}", resume=path) if inexact else one_process(alone)
        _assert_goes_on(resumed, expected, 1)

    return check


@pytest.mark.parametrize("writes", [True, False], ids=["writes", "reads"])
@pytest.mark.parametrize("name", WAYS)
def test_every_way_exchanges_checkpoints_with_another(name: str, writes: bool, assert_exchanged: Make) -> None:
    first, then = WAYS[name] if writes else WAYS[name][::-1]
    assert_exchanged(first, then, f"{name}-{writes}", steps=4, eval={"batches": 1})


def test_a_run_with_rounded_messages_is_continued_on_another_layout(assert_exchanged: Make) -> None:
    """Its checkpoint has the masters, which nothing rounds."""
    writer = {"data": 4, "zero": 3, "zero_plus_plus": SMALLER}
    assert_exchanged(writer, {"tensor": 2, "data": 2, "zero": 1}, "rounded", steps=4, eval={"batches": 1})


PAIRS = int(os.environ.get("PARITY_PAIRS", "2"))


@functools.cache
def drawn() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return draw_pairs(int(os.environ.get("PARITY_SEED", "0")), PAIRS)


@pytest.mark.parametrize("number", range(PAIRS))
def test_a_drawn_layout_resumes_from_another(number: int, assert_exchanged: Make) -> None:
    writer, reader = pair = drawn()[number]
    print(f"{writer} to {reader}")
    changes = {"model": pair_model(*pair), "global_batch": PAIRS_BATCH, "eval": {"batches": 1}}
    assert_exchanged(writer, reader, str(number), steps=3, **changes)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_same_layout_continues_with_the_same_bits(precision: str, root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2, "zero": 1}, precision=precision, checkpoint={"every": 3})
    name = f"bits-{precision}"
    whole = train(spec, root, name)
    folder = root / "checkpoints" / name
    newest = max(folder.iterdir())
    (newest / "manifest.json").unlink()  # as if the save of step 5 had been cut off
    resumed = train(spec, root, name)
    assert resumed["losses"] == whole["losses"][3:]
    assert all(np.array_equal(value, resumed["parameters"][key]) for key, value in whole["parameters"].items())
    assert (newest / "manifest.json").exists()


def test_a_checkpoint_in_fp32_continues_in_bf16(root: Path, make_spec: Make) -> None:
    """As a job does that moves from CPUs to GPUs. Values and optimizer state are fp32 in both."""
    save = {"every": 3, "final": False}
    whole = train(make_spec({}, precision="auto", checkpoint=save), root, "from-fp32")
    path = root / "checkpoints" / "from-fp32" / "step-00000003"
    (plan,) = [data for kind, data in whole["events"] if kind == "plan"]
    assert (plan["precision"], plan["compile"], len(plan["choices"])) == ("fp32", False, 2)
    assert json.loads((path / "manifest.json").read_text())["training"]["precision"] == "fp32"
    resumed = train(make_spec({}, precision="bf16"), root, "to-bf16", resume=path)
    np.testing.assert_allclose(resumed["losses"], whole["losses"][3:], rtol=0.01)


def test_keeps_the_newest(root: Path, make_spec: Make) -> None:
    train(make_spec({}, checkpoint={"every": 1, "keep": 2}), root, "keep")
    kept = sorted((root / "checkpoints" / "keep").iterdir())
    assert [path.name for path in kept] == ["step-00000004", "step-00000005"]
    assert json.loads((kept[-1] / "manifest.json").read_text())["step"] == 5


@pytest.mark.parametrize("damage", ["missing", "manifest"])
def test_a_corrupt_one_is_reported_and_the_one_before_is_used(damage: str, root: Path, make_spec: Make) -> None:
    name, spec = f"damage-{damage}", make_spec({"data": 2, "zero": 1}, checkpoint={"every": 2, "keep": 3})
    whole = train(spec, root, name)
    *_, before, newest = sorted((root / "checkpoints" / name).iterdir())
    victim = spoil(newest, damage)
    resumed = train(spec, root, name)
    (incident,) = [data for kind, data in resumed["events"] if kind == "incident"]
    assert (incident["cause"], incident["step"]) == ("checkpoint_corrupt", int(newest.name[5:]))
    assert all(said in incident["message"] for said in (str(newest), victim, str(before)))
    assert resumed["losses"] == whole["losses"][4:]
    assert all(np.array_equal(value, resumed["parameters"][key]) for key, value in whole["parameters"].items())


def spoil(checkpoint: Path, damage: str) -> str:
    """Damage one of its files; returns the file's name."""
    victim = checkpoint / "manifest.json" if damage == "manifest" else max(checkpoint.glob("rank-*"))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    if damage == "missing":
        victim.unlink()
    return victim.name


def test_where_none_is_whole_training_starts_again_and_says_so(root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2}, steps=2, checkpoint={"every": 1})
    whole = train(spec, root, "none-whole")
    for path in (root / "checkpoints" / "none-whole").iterdir():
        spoil(path, "flip")
    again = train(spec, root, "none-whole")
    incidents = [data["message"] for kind, data in again["events"] if kind == "incident"]
    assert len(incidents) == 2 and all("continues from the start" in message for message in incidents)
    assert again["losses"] == whole["losses"]


def test_a_corrupt_one_that_was_named_is_refused(root: Path, make_spec: Make) -> None:
    train(make_spec({"data": 2}, steps=2, checkpoint={"every": 1}), root, "named")
    path = root / "checkpoints" / "named" / "step-00000002"
    spoil(path, "flip")
    with pytest.raises(
        RuntimeError, match=r"step-00000002 is corrupt: rank-.* does not match its checksum; use an older"
    ):
        train(make_spec({"data": 2}), root, "of-named", resume=path)


def test_another_model_is_refused(root: Path, make_spec: Make) -> None:
    train(make_spec({}, steps=1, checkpoint={}), root, "small")
    other = {"family": "llama", "preset": "nano", "layers": 2, "dim": 64, "heads": 4, "kv_heads": 2, "hidden": 64}
    with pytest.raises(RuntimeError, match="its weights do not fit"):
        train(make_spec({}, model=other), root, "other", resume=root / "checkpoints" / "small" / "step-00000001")


def test_nothing_left_to_do_is_said(root: Path, make_spec: Make) -> None:
    train(make_spec({}, steps=2, checkpoint={}), root, "done")
    with pytest.raises(RuntimeError, match="raise it"):
        train(make_spec({}, steps=2, checkpoint={}), root, "done")
