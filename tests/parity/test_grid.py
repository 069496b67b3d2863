"""Layouts drawn at random from all legal ones equal one process: `make parity SEED=7 N=120`.

`make test` draws a few with a fixed seed, so that it is the same test every time.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.grid import axes, draw, draw_options, layouts, model_of
from harness.ranks import train

from shardyard.strategies.layout import Layout

#: Fields of a layout that the grid does not vary.
LEFT_OUT = {
    "elastic",  # which degree runs, not how
    "auto",  # who chose the degrees
    "virtual",
    "tensor_shape",  # what `tensor: {mode: …}` becomes
    "pipeline_split",  # what `pipeline: {stages: …}` becomes
    "pipeline_blocks",
    "vertical_sync",  # of a schedule that equals another loop than one process
}

COUNT = int(os.environ.get("PARITY_COUNT", "6"))


@functools.cache
def drawn() -> list[dict[str, Any]]:
    return draw(int(os.environ.get("PARITY_SEED", "0")), COUNT)


@pytest.mark.parametrize("number", range(COUNT))
def test_equals_one_process(
    number: int, root: Path, make_spec: Callable[..., Any], one_process: Callable[..., Any]
) -> None:
    layout = drawn()[number]
    options = draw_options(layout, number)
    print(layout, options)
    alone = make_spec(layout, model=model_of(layout), steps=3)
    found, expected = train({**alone, **options}, root, "grid"), one_process(alone)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    assert found["parameters"].keys() == expected["parameters"].keys()
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


def test_the_grid_has_every_kind_of_product() -> None:
    found = list(layouts())
    assert len(found) >= 120
    assert {axes(layout) for layout in found} >= {1, 2, 3}
    assert len({repr(layout) for layout in found}) == len(found)
    named = {field for layout in found for field in layout}
    assert named == Layout.model_fields.keys() - LEFT_OUT
