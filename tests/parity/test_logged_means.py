"""What a user's own module logs is, on every layout, what one process logs: once per step, over micro-batches, ranks and stages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.ranks import train

Make = Callable[..., Any]

MODULE = """
import torch
from torch import nn

import shardyard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        y = x + torch.tanh(self.linear(x))
        self.log("aux/square", y.square().mean())
        return y


class Net(nn.Module):
    def __init__(self, width, blocks, wrong):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.blocks = nn.ModuleDict({str(at): Block(width) for at in range(blocks)})
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)
        self.wrong, self.calls = wrong, 0

    def forward(self, x):
        if self.embed is not None:
            shardyard.log({"first": x.double().mean(), "one": 1})
            x = self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        if self.head is None:
            return x
        self.calls += 1
        if self.training and self.calls > 20:
            self.log("late", 5.0)
        if self.wrong:
            self.log("vector", x)
        return self.head(self.norm(x))


def make(width=8, blocks=4, wrong=False):
    return Net(width, blocks, wrong)


class Own(nn.Module):
    def log(self, *_):
        raise AssertionError("its own method")


def with_a_log():
    model = Net(8, 4, False)
    model.extra = Own()
    return model
"""

LAYOUTS: list[dict[str, Any]] = [
    {"data": 2, "micro_batch": 2},
    {"data": 2, "zero": 3},
    {"pipeline": 2, "micro_batch": 2},
    {"data": 2, "pipeline": 2, "micro_batch": 2, "zero": 1},
]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "logging_model.py").write_text(MODULE)
    return lambda factory="make", **args: {"import": f"logging_model:{factory}", "code": str(folder), "args": args}


def logged(result: Any) -> dict[int, dict[str, float]]:
    """Step → what was logged, of each reported step."""
    return {data["step"]: data.get("logged", {}) for kind, data in result["events"] if kind == "step"}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_equals_one_process(layout: Any, own: Make, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=own())
    result = train(spec, root)
    found, expected = logged(result), logged(one_process(spec))
    assert len(result["losses"]) == len(found) == len(expected) > 3
    for step, values in expected.items():
        assert values["one"] == found[step]["one"] == 1.0
        for name in ("aux/square", "first"):
            np.testing.assert_allclose(found[step][name], values[name], rtol=1e-5, err_msg=f"{name} at {step}")
    # A name that comes later, on the last stage only, is in the steps that have it.
    assert found[1].keys() == {"aux/square", "first", "one"}


def test_a_name_may_come_in_a_later_step(own: Make, root: Path, make_spec: Make) -> None:
    found = logged(train(make_spec({"data": 2, "pipeline": 2, "micro_batch": 1}, model=own()), root))
    late = [step for step, values in found.items() if "late" in values]
    assert late and late == list(range(late[0], len(found) + 1)) and late[0] > 1
    assert {found[step]["late"] for step in late} == {5.0}


def test_a_module_with_a_log_of_its_own_keeps_it(own: Make, root: Path, make_spec: Make) -> None:
    assert logged(train(make_spec({}, model=own("with_a_log")), root))[1]["one"] == 1.0


def test_what_is_no_scalar_fails_the_job_with_its_name(own: Make, root: Path, make_spec: Make) -> None:
    with pytest.raises(RuntimeError, match=r"'vector' is a tensor of .* log a scalar"):
        train(make_spec({"data": 2}, model=own(wrong=True)), root)
