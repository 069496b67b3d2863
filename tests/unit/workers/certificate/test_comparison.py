"""Each kind of number is compared, and a wrong one is found where it is."""

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.certificate.comparison import BOUND, Comparison, compare, largest_relative
from shardyard.workers.certificate.training import Training
from shardyard.workers.checkpoint.manifest import File, Manifest, write
from shardyard.workers.checkpoint.staging_buffer import StagingBuffer
from shardyard.workers.storage.local_folder import LocalFolder

WEIGHT = torch.arange(6, dtype=torch.float64).reshape(2, 3)
STATE = {"w": WEIGHT, "optimizer.exp_avg.w": WEIGHT / 8}


def saved(folder: Path, **tensors: torch.Tensor) -> str:
    """A checkpoint with these tensors, in two slices where there are two rows, as two ranks would save it."""
    files: dict[str, File] = {}
    entries = {}
    where = LocalFolder(str(folder))
    for rank in range(2):
        shards = [
            ParamShard(name, tuple(value.shape), (rank, 0), value[rank : rank + 1].contiguous(), frozenset())
            for name, value in tensors.items()
        ]
        image = StagingBuffer(shards, torch.device("cpu"))
        image.take()
        content = bytes(image.content())
        where.write(f"rank-{rank}", memoryview(content))
        files[f"rank-{rank}"] = File(len(content), hashlib.sha256(content).hexdigest(), tuple(image.slices))
        entries |= image.tensors
    write(where, Manifest(2, {}, entries, files))
    return str(folder)


def training(folder: Path, **tensors: torch.Tensor) -> Training:
    return Training((5.0, 4.0), (1.0, 2.0), (4.5,), {}, checkpoint=saved(folder, **tensors))


def found(changed: Training, expected: Training) -> dict[str, Comparison]:
    return {one.what: one for one in compare(changed, expected)}


@pytest.fixture
def expected(tmp_path: Path) -> Training:
    return training(tmp_path / "alone", **STATE)


def test_equal_trainings_are_equal_in_every_number(expected: Training, tmp_path: Path) -> None:
    each = compare(training(tmp_path / "layout", **STATE), expected)
    assert [(one.what, one.compared, one.difference, one.equal) for one in each] == [
        ("losses", 2, 0.0, True),
        ("gradient norms", 2, 0.0, True),
        ("validation losses", 1, 0.0, True),
        ("parameters", 6, 0.0, True),
        ("optimizer state", 6, 0.0, True),
    ]


def test_rounding_is_within_the_bound_and_a_wrong_number_is_not(expected: Training) -> None:
    assert found(replace(expected, losses=(5.0, 4.0 * (1 + 1e-14))), expected)["losses"].equal
    wrong = found(replace(expected, losses=(5.0, 4.0 * (1 + 1e-9))), expected)["losses"]
    assert (wrong.equal, wrong.where) == (False, "step 2")
    assert wrong.difference == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_not_finite_is_never_equal(expected: Training, number: float) -> None:
    wrong = replace(expected, norms=(1.0, number))
    for one in (found(wrong, expected), found(expected, wrong), found(wrong, wrong)):
        assert (one["gradient norms"].equal, one["gradient norms"].difference) == (False, None)


def test_a_missing_step_is_never_equal(expected: Training) -> None:
    assert not found(replace(expected, losses=(5.0,)), expected)["losses"].equal


def test_a_wrong_element_is_found_by_its_tensor(expected: Training, tmp_path: Path) -> None:
    other = WEIGHT.clone()
    other[1, 2] += 2 * BOUND
    each = found(training(tmp_path / "layout", **STATE | {"optimizer.exp_avg.w": other / 8}), expected)
    assert each["parameters"].equal and each["optimizer state"].difference
    each = found(training(tmp_path / "other", **STATE | {"w": other}), expected)
    assert (each["parameters"].equal, each["parameters"].where) == (False, "w")
    other[0, 0] = math.nan
    each = found(training(tmp_path / "nan", **STATE | {"w": other}), expected)
    assert (each["parameters"].equal, each["parameters"].difference, each["parameters"].where) == (False, None, "w")


def test_a_tensor_that_only_one_has_is_named(expected: Training, tmp_path: Path) -> None:
    each = found(training(tmp_path / "layout", **STATE | {"v": WEIGHT}), expected)
    assert (each["parameters"].equal, each["parameters"].where) == (False, "only one has v")
    assert each["optimizer state"].equal


def test_older_versions_of_weights_are_not_compared(expected: Training, tmp_path: Path) -> None:
    with_older = training(tmp_path / "layout", **STATE, **{"previous.w": WEIGHT + 1})
    assert all(one.equal for one in compare(with_older, expected))


def test_the_largest_relative_difference() -> None:
    assert largest_relative((4.0, 5.0), (4.0, 4.0)) == 0.25
    assert largest_relative((math.nan, 5.0), (4.0, 4.0)) is None
    assert largest_relative((4.0,), (4.0, 4.0)) is None
