"""A user's own module: data parallel and ZeRO on any module; tensor and pipeline only with what the module gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.ranks import train

Make = Callable[..., Any]

MODULE = '''
import torch
from torch import nn


class Bigram(nn.Module):
    """Next token from this one, with odd sizes, a scalar parameter, dropout and one parameter that has no part in the loss."""

    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.layers = nn.Sequential(nn.Linear(width, 13), nn.Tanh(), nn.Linear(13, width))
        self.dropout = nn.Dropout(dropout)
        self.temperature = nn.Parameter(torch.ones(()))
        self.unused = nn.Parameter(torch.ones(5, 2))
        self.head = nn.Linear(width, 256)
        self.register_buffer("scale", torch.full((1,), 2.0))

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(self.dropout(x + self.layers(x)) * self.temperature) * self.scale


def make(width=10, dropout=0.0):
    return Bigram(width, dropout)


def not_a_module():
    return 3


def bad_shape():
    return nn.Embedding(256, 4)


def statistics():
    return nn.Sequential(nn.Embedding(256, 4), nn.BatchNorm1d(4))


class Counting(Bigram):
    def forward(self, tokens):
        self.scale += 1
        return super().forward(tokens)


def counting():
    return Counting(4)
'''


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "my_model.py").write_text(MODULE)

    def model(factory: str = "make", **args: Any) -> dict[str, Any]:
        return {"import": f"my_model:{factory}", "code": str(folder), "args": args}

    return model


LAYOUTS: list[dict[str, Any]] = [
    {"data": 2},
    {"data": 4, "zero": 1, "micro_batch": 2},
    {"data": 3, "zero": 2},
    {"data": 2, "zero": 2, "micro_batch": 4},
    {"data": 2, "zero": 3},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_equals_one_process(layout: Any, own: Make, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=own(width=10))
    found, expected = train(spec, root), one_process(spec)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


def test_dropout_draws_the_same_after_a_resume(own: Make, root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2}, model=own(dropout=0.3), checkpoint={"every": 3, "final": False})
    whole = train(spec, root, "dropout")
    resumed = train(spec, root, "dropout")
    assert resumed["losses"] == whole["losses"][3:]


@pytest.mark.parametrize(
    ("layout", "factory", "message"),
    [
        ({"tensor": 2}, "make", "has no tensor_plan"),
        ({"pipeline": 2}, "make", "cannot be split"),
        ({}, "not_a_module", "returned a int"),
        ({}, "missing", "cannot import my_model:missing"),
        ({}, "statistics", "1 is a BatchNorm1d with running statistics"),
        ({}, "bad_shape", r"returned \(16, 32, 4\)|index|out of"),
        ({"data": 2, "zero": 3}, "counting", "the buffer scale has changed in step 2"),
    ],
)
def test_what_it_cannot_do_is_said(
    layout: Any, factory: str, message: str, own: Make, root: Path, make_spec: Make
) -> None:
    with pytest.raises(RuntimeError, match=message):
        train(make_spec(layout, model=own(factory)), root)
