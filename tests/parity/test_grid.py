"""Layouts drawn at random from all legal ones equal one process: `make parity SEED=7 N=120`.

In fp64 all numbers are equal to 1e-10. Where the schedule delays gradients, one process has the same delays: the textbook's loop
(`harness/textbook_delayed.py`). What computes in fewer bits stays near the numbers in fp64, and so does the sum of its updates.

`make test` draws a few with a fixed seed, so that it is the same test every time.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.grid import axes, draw, draw_options, draw_recipe, is_delayed, layouts, model_of, small
from harness.ranks import train
from harness.textbook import Record
from harness.textbook_delayed import Delayed, NotDelayed, Stashed, Synchronised

from shardyard.strategies.layout import Layout

from . import test_textbook as textbook

spec_of, one_thread = textbook.spec_of, textbook.one_thread

Make = Callable[..., Any]

#: Fields of a layout that the grid does not vary.
LEFT_OUT = {
    "elastic",  # which degree runs, not how
    "auto",  # who chose the degrees
    "virtual",
    "tensor_shape",  # what `tensor: {mode: …}` becomes
    "pipeline_split",  # what `pipeline: {stages: …}` becomes
    "pipeline_blocks",
}

COUNT = int(os.environ.get("PARITY_COUNT", "6"))
EXACT = 1e-10
#: How far losses may be from those in fp64, and the updates of a parameter from their own size. A norm's weights are about 1, and small
#: updates of them are rounded in fp32 to 1%.
NEAR = {"fp32": (1e-4, 0.05), "bf16": (0.01, 0.2), "fp16": (0.01, 0.2)}
#: AdamW's first updates are the signs of gradients, which rounding may turn.
SGD = {"name": "sgd", "lr": 0.1}


@functools.cache
def drawn() -> list[dict[str, Any]]:
    return draw(int(os.environ.get("PARITY_SEED", "0")), COUNT)


@pytest.mark.parametrize("number", range(COUNT))
def test_equals_one_process(number: int, root: Path, make_spec: Make, one_process: Make, spec_of: Make) -> None:
    layout = drawn()[number]
    options = draw_options(layout, number)
    print(layout, options)
    if is_delayed(layout):
        assert_equals_late_loop(number, layout, options, root, spec_of)
        return
    alone = make_spec(layout, model=model_of(layout), steps=3)
    if options["precision"] == "fp64":
        found, expected = train({**alone, **options}, root, "grid"), one_process(alone)
        np.testing.assert_allclose(found["losses"], expected["losses"], rtol=EXACT)
        assert found["parameters"].keys() == expected["parameters"].keys()
        for name, value in expected["parameters"].items():
            np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=EXACT, err_msg=name)
        return
    alone["optimizer"] = SGD
    found, expected = train({**alone, **options}, root, "grid"), one_process(alone)
    first = one_process({**alone, "optimizer": {**SGD, "lr": 1e-30}, "steps": 1})["parameters"]
    assert not any(data["skipped"] for kind, data in found["events"] if kind == "step")
    assert_near(options["precision"], found, expected, first)


def assert_near(precision: str, found: Any, expected: Any, first: dict[str, Any]) -> None:
    """`first`: the parameters before any update."""
    of_losses, of_updates = NEAR[precision]
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=of_losses)
    assert found["parameters"].keys() == expected["parameters"].keys()
    off = {
        name: float(np.linalg.norm(found["parameters"][name] - value) / np.linalg.norm(first[name] - value))
        for name, value in expected["parameters"].items()
    }
    worst = max(off, key=off.__getitem__)
    print(f"{worst} is off by {off[worst]:.2g} of its updates")
    assert off[worst] <= of_updates


def assert_equals_late_loop(
    number: int, layout: dict[str, Any], options: dict[str, Any], root: Path, spec_of: Make
) -> None:
    """Six steps: the longest delay is three."""
    model, clips = draw_recipe(layout, number)
    exact = options["precision"] == "fp64"
    optimizer = {**textbook.COMMON["optimizer"], **({} if exact else SGD)}
    optimizer["clip_norm"] = optimizer["clip_norm"] if clips else None
    print(model, "clipped" if clips else "not clipped")
    spec = spec_of(model, layout, global_batch=small(layout)["global_batch"], optimizer=optimizer)
    run = train({**spec, **options}, root, f"late-{number}")
    found, expected = textbook.recorded(run), late_loop(spec, run)
    if exact:
        assert textbook.distance(found, expected) < EXACT
        assert textbook.distance(found, NotDelayed(spec).run()) > textbook.SHARP
        return
    of_losses, _ = NEAR[options["precision"]]
    np.testing.assert_allclose(found.losses, expected.losses, rtol=of_losses)


def late_loop(spec: dict[str, Any], run: dict[str, Any]) -> Record:
    """The record of one process whose gradients are as late as those of the spec's schedule."""
    layout = spec["layout"]
    if layout["schedule"] == "2bw":
        return Delayed(spec).run()
    if layout.get("vertical_sync"):
        return Synchronised(spec, layout["pipeline"]).run()
    (blocks,) = [data["stage_blocks"] for kind, data in run["events"] if kind == "plan"]
    return Stashed(spec, blocks).run()


def test_the_grid_has_every_kind_of_product() -> None:
    found = list(layouts())
    assert len(found) >= 120
    assert {axes(layout) for layout in found} >= {1, 2, 3}
    assert len({repr(layout) for layout in found}) == len(found)
    named = {field for layout in found for field in layout}
    assert named == Layout.model_fields.keys() - LEFT_OUT


def test_grids_and_late_gradients_are_drawn_with_every_precision_that_they_can_have() -> None:
    found = list(layouts())
    grids = [layout for layout in found if isinstance(layout.get("tensor"), dict)]
    late = [layout for layout in found if is_delayed(layout)]
    of_grids, of_late = (
        {draw_options(layout, number)["precision"] for layout in some for number in range(8)} for some in (grids, late)
    )
    assert of_grids == {"fp64", "fp32", "bf16", "fp16"}
    assert of_late == {"fp64", "fp32", "bf16"}
